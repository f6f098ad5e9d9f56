//! Compares two tables of operations by whether the keys of each path are bound to principals.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Method;
use firstwrite::Policies;

/// The operations of a gateway, and whether each binds its keys.
pub(super) struct Bindings<'a> {
    others: bool,
    named: &'a BTreeMap<String, bool>,
    /// Finds the pattern that decides for a path; its reason is one of the two below.
    table: Policies,
}

const BOUND: &str = "bound";
const NOT_BOUND: &str = "not bound";

impl<'a> Bindings<'a> {
    pub(super) fn new(others: bool, named: &'a BTreeMap<String, bool>) -> Self {
        let rows = named.iter().filter_map(|(name, is)| Some((parts(name)?, says(*is))));
        let table = rows.fold(Policies::new(), |table, ((method, pattern), is)| {
            table.unprotected(method, pattern, is)
        });
        Self { others, named, table }
    }

    /// Names the operations whose keys were bound otherwise by `known`.
    pub(super) fn differences(&self, known: &Self) -> Vec<String> {
        let differs = |name: &str, was: &str, is: &str| {
            (was != is).then(|| format!("keys of {name} were {was} to principals and are {is}"))
        };
        let others = differs("operations without a section", says(known.others), says(self.others));
        let mut names: BTreeSet<String> =
            known.named.keys().chain(self.named.keys()).cloned().collect();
        // Two patterns may share paths that neither has for itself.
        for (one, was) in known.named {
            let otherwise = self.named.iter().filter(|(_, is)| was != *is);
            names.extend(otherwise.filter_map(|(other, _)| shared(one, other)));
        }
        let named = names.iter().filter_map(|name| differs(name, known.of(name), self.of(name)));
        others.into_iter().chain(named).collect()
    }

    /// The word for all paths of a pattern that no narrower one decides.
    fn of(&self, name: &str) -> &str {
        let row =
            parts(name).and_then(|(method, path)| self.table.unprotected_reason(&method, path));
        row.unwrap_or(says(self.others))
    }
}

fn says(is_bound: bool) -> &'static str {
    if is_bound { BOUND } else { NOT_BOUND }
}

fn parts(name: &str) -> Option<(Method, &str)> {
    let (method, pattern) = name.split_once(' ')?;
    Some((method.parse().ok()?, pattern))
}

/// The pattern of the paths that two operations share.
fn shared(one: &str, other: &str) -> Option<String> {
    let is_rest = |segment: &str| segment.starts_with("{*");
    let is_any = |segment: &str| segment.starts_with('{');
    let (mut ones, mut others) = (one.split('/'), other.split('/'));
    let mut all = Vec::new();
    loop {
        match (ones.next(), others.next()) {
            (None, None) => return Some(all.join("/")),
            (Some(rest), Some(first)) | (Some(first), Some(rest)) if is_rest(rest) => {
                all.push(first);
                all.extend(ones.by_ref());
                all.extend(others.by_ref());
                return Some(all.join("/"));
            }
            (Some(any), Some(text)) | (Some(text), Some(any)) if is_any(any) => all.push(text),
            (Some(text), Some(same)) if text == same => all.push(text),
            (Some(_), Some(_) | None) | (None, Some(_)) => return None,
        }
    }
}
