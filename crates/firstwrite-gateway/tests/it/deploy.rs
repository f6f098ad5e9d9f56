//! What operators are given beside the binary speaks of metrics that exist, and the docs of all of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firstwrite::{Key, Store as _, Tenant};
use firstwrite_core::Message;
use firstwrite_gateway::{Counting, Rules};
use serde_json::Value;

use crate::client::post;
use crate::gateway::rules;
use crate::scrape::Watched;
use crate::upstream::Upstream;

const DASHBOARD: &str = include_str!("../../../../deploy/grafana/dashboard.json");
const ALERTS: &str = include_str!("../../../../deploy/prometheus/alerts.yml");
const ALERTS_TEST: &str = include_str!("../../../../deploy/prometheus/alerts.test.yml");
const DOCS: &str = include_str!("../../../../docs/telemetry.md");

/// The text of a scrape in which every metric has a line.
async fn scraped() -> String {
    let upstream = Upstream::start().await;
    let counting = Counting { tenant_usage: Arc::default(), every: Duration::from_millis(20) };
    let rules = Rules { counting: Some(counting), ..rules(&[&upstream]) };
    let watched = Watched::start(rules).await;
    watched.ask(&post("k", "{}")).await;
    watched.scrape_until("active_keys{tenant=\"anonymous\"}", 1.0).await;
    let (tenant, key) = (Tenant::new("acme").unwrap(), Key::new("k").unwrap());
    let message = Message::new(&tenant, &key, "charge", "provider", Bytes::new()).unwrap();
    watched.store.outbox().unwrap().enqueue(&message).await.unwrap();
    watched.metrics.look_once(&*watched.store).await.unwrap();
    watched.store.goes_away();
    watched.ask(&post("k2", "{}")).await;
    let (_is_open, seen) = tokio::sync::watch::channel(false);
    watched.metrics.watch_breaker(seen);
    watched.metrics.watch_cache(|| [("hit", 1), ("miss", 1), ("failure", 1)]);
    watched.metrics.watch_unopened(|| [("altered", 1), ("no_key", 1), ("not_sealed", 1)]);
    watched.scrape().await.text
}

/// The words in a text that are names of ours; parts of recorded names (`a:firstwrite_b:c`) are not.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c: char| !is_part(c));
    words.filter(|word| word.starts_with("firstwrite_")).collect()
}

#[tokio::test]
async fn every_metric_of_the_dashboard_and_the_alerts_exists() {
    let scraped = scraped().await;
    let samples = scraped.lines().filter(|line| !line.starts_with('#'));
    let there: BTreeSet<&str> = samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 10, "{panels:?}");
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            assert!(!names(target["expr"].as_str().unwrap()).is_empty(), "{target}");
        }
    }
    for (file, text) in [("dashboard", DASHBOARD), ("alerts", ALERTS), ("their test", ALERTS_TEST)]
    {
        let unknown: Vec<_> = names(text).difference(&there).copied().collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
    }
}

#[tokio::test]
async fn the_docs_name_every_metric_and_every_alert_and_no_others() {
    let scraped = scraped().await;
    let families = scraped.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(|line| {
        match line.split_once(' ').unwrap() {
            (name, "counter") => format!("{name}_total"),
            (name, "info") => format!("{name}_info"),
            (name, _) => name.to_owned(),
        }
    });
    let families: BTreeSet<String> = families.collect();
    let rows = DOCS.lines().filter_map(|line| line.strip_prefix("| `firstwrite_"));
    let named = rows.map(|row| format!("firstwrite_{}", row.split('`').next().unwrap()));
    assert_eq!(named.collect::<BTreeSet<String>>(), families);
    let alerts = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let rows = DOCS.lines().filter_map(|line| line.strip_prefix("| `Firstwrite"));
    let named = rows.map(|row| format!("Firstwrite{}", row.split('`').next().unwrap()));
    assert_eq!(named.collect::<BTreeSet<_>>(), alerts.map(str::to_owned).collect());
}
