//! Checks a Galera cluster: whether this node is part of it, and whether others write too.
//!
//! Reports of 2026 show updates lost and old rows read in healthy clusters with several writers, and
//! acknowledged commits lost where a node does not flush. The promise here holds for one writer that
//! flushes.

use super::{Named, is_on, value};
use crate::doctor::Finding;

pub(super) fn look(settings: &Named, counters: &Named) -> Vec<Finding> {
    if !is_on(settings, "wsrep_on") {
        return Vec::new();
    }
    let size = value(counters, "wsrep_cluster_size");
    let state = value(counters, "wsrep_local_state_comment");
    let mut findings = vec![
        Finding::note("cluster", format!("a node of a Galera cluster of {size}, {state}"))
            .means("all services must write to the same node, and move to another one together")
            .next(
                "name the nodes in one order everywhere, or one address that leads to one writer",
            ),
    ];
    if value(counters, "wsrep_cluster_status") != "Primary" || !is_on(counters, "wsrep_ready") {
        findings.push(
            Finding::warning("cluster-split", "this node is not part of the cluster's majority")
                .means("no key can be reserved here")
                .next("point --store at a node of the majority, or mend the network"),
        );
    }
    if size.parse::<u32>().is_ok_and(|size| size < 3) {
        findings.push(
            Finding::warning("cluster-size", format!("the cluster has {size} nodes"))
                .means(
                    "after the loss of one node the other cannot tell whether it is the majority",
                )
                .next("have three nodes, or two and an arbitrator"),
        );
    }
    let refused = number(counters, "wsrep_local_cert_failures");
    let aborted = number(counters, "wsrep_local_bf_aborts");
    if refused + aborted > 0 {
        let what = format!(
            "{refused} commits of this node were refused and {aborted} were cut off by other nodes' writes"
        );
        findings.push(
            Finding::unsafe_("several-writers", what)
                .means(
                    "several nodes write the same rows: updates can be lost and old rows be read, so \
                     effects can run twice",
                )
                .next("let all services write to one node; the counters begin anew when it restarts"),
        );
    }
    findings
}

fn number(counters: &Named, name: &str) -> i64 {
    value(counters, name).parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look_at(pairs: &[(&str, &str)]) -> Vec<&'static str> {
        let usual = [
            ("wsrep_on", "ON"),
            ("wsrep_ready", "ON"),
            ("wsrep_cluster_status", "Primary"),
            ("wsrep_cluster_size", "3"),
        ];
        let all: Named = usual
            .iter()
            .chain(pairs)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        look(&all, &all).into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn one_writer_is_fine_and_several_are_not() {
        assert_eq!(look_at(&[]), ["cluster"]);
        assert_eq!(look_at(&[("wsrep_local_cert_failures", "1")]), ["cluster", "several-writers"]);
        assert_eq!(look_at(&[("wsrep_local_bf_aborts", "2")]), ["cluster", "several-writers"]);
    }

    #[test]
    fn a_node_outside_the_majority_and_a_pair_are_trouble() {
        assert_eq!(
            look_at(&[("wsrep_cluster_status", "non-Primary")]),
            ["cluster", "cluster-split"]
        );
        assert_eq!(look_at(&[("wsrep_cluster_size", "2")]), ["cluster", "cluster-size"]);
        assert!(look(&Named::new(), &Named::new()).is_empty());
    }
}
