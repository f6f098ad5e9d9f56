//! Rules about who may depend on whom.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::files::Tree;
use crate::crates::Package;

const FILE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- rooms:begin -->";
const END: &str = "<!-- rooms:end -->";

/// Crates that speak to a database.
const DRIVERS: &[&str] =
    &["aws-sdk-dynamodb", "mysql_async", "redis", "rusqlite", "sqlx", "tokio-postgres"];

/// Drivers of databases that are brokers and caches too, by the crates that speak to them as such.
const NO_STORES: &[(&str, &str)] = &[("firstwrite", "redis"), ("firstwrite-wrappers", "redis")];

/// Crates with a file of their own on the caller's side, by the driver they use for it.
const CALLERS: &[(&str, &str)] = &[("firstwrite-client", "rusqlite")];

/// Crates that look at the rest from outside, each with all that it uses of ours.
const OUTSIDERS: &[(&str, &[&str])] =
    &[("firstwrite-chaos", &[]), ("firstwrite-verify", &[]), ("xtask", &["firstwrite-chaos"])];

/// Crates that people use without the rest, and which only their tests compare with it.
const STANDALONE: &[&str] = &["firstwrite-client"];

/// Crates of the workspace that a crate uses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Uses {
    normal: BTreeSet<String>,
    dev: BTreeSet<String>,
}

/// Rows by crate, each with its line.
type Table = BTreeMap<String, (usize, Uses)>;

/// The table of rooms in ARCHITECTURE.md says exactly what the manifests say.
pub(super) fn table(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    const REASON: &str = "people trust the table, and a new arrow is a decision";
    let Some(file) = tree.file(FILE) else {
        return vec![Finding::new(FILE, 0, "write it, with the table of rooms", REASON)];
    };
    let Some(mut told) = read_table(&file.text) else {
        let advice = format!("put the table of rooms between `{BEGIN}` and `{END}`");
        return vec![Finding::new(FILE, 0, advice, REASON)];
    };
    let mut findings = Vec::new();
    for package in packages {
        let uses = uses(package, packages);
        let row = row(&package.name, &uses);
        match told.remove(&package.name) {
            None => findings.push(Finding::new(FILE, 0, format!("add the row {row}"), REASON)),
            Some((_, told)) if told == uses => {}
            Some((line, _)) => {
                let advice = format!("make the row {row}, or change the manifest");
                findings.push(Finding::new(FILE, line, advice, REASON));
            }
        }
    }
    for (name, (line, _)) in told {
        let advice = format!("delete the row of `{name}`: there is no such crate");
        findings.push(Finding::new(FILE, line, advice, REASON));
    }
    findings
}

/// Walls that stand whatever the table says.
pub(super) fn walls(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        let uses = uses(package, packages);
        if uses.normal.contains("firstwrite-testkit") && package.name != "firstwrite-sim" {
            findings.push(Finding::new(
                &package.manifest,
                0,
                "make firstwrite-testkit a dev-dependency",
                "nobody ships the test suite",
            ));
        }
        let outsider = OUTSIDERS.iter().find(|(name, _)| *name == package.name);
        if let Some((_, allowed)) = outsider
            && let Some(ours) =
                uses.normal.iter().chain(&uses.dev).find(|ours| !allowed.contains(&ours.as_str()))
        {
            findings.push(Finding::new(
                &package.manifest,
                0,
                format!("drop the dependency on {ours}"),
                "what checks the others shares no code with them",
            ));
        }
        if STANDALONE.contains(&package.name.as_str())
            && let Some(ours) = uses.normal.first()
        {
            findings.push(Finding::new(
                &package.manifest,
                0,
                format!("drop the dependency on {ours}, or make it a dev-dependency"),
                "callers need it without the rest",
            ));
        }
        let driver = package.dependencies.iter().find(|own| {
            let is_no_store = NO_STORES.contains(&(package.name.as_str(), own.name.as_str()));
            let is_caller = CALLERS.contains(&(package.name.as_str(), own.name.as_str()));
            DRIVERS.contains(&own.name.as_str()) && !is_no_store && !is_caller
        });
        if let Some(driver) = driver.filter(|_| package.name != "firstwrite-store") {
            findings.push(Finding::new(
                &package.manifest,
                0,
                format!("drop the driver {} and go through firstwrite-store", driver.name),
                "only the store speaks to a database",
            ));
        }
    }
    findings
}

fn uses(package: &Package, packages: &[Package]) -> Uses {
    let mut uses = Uses::default();
    for dependency in &package.dependencies {
        if packages.iter().any(|ours| ours.name == dependency.name) {
            let set = if dependency.is_dev { &mut uses.dev } else { &mut uses.normal };
            set.insert(dependency.name.clone());
        }
    }
    uses
}

fn row(name: &str, uses: &Uses) -> String {
    let list = |names: &BTreeSet<String>| match names.len() {
        0 => "—".to_owned(),
        _ => names.iter().cloned().collect::<Vec<_>>().join(", "),
    };
    format!("| `{name}` | ours: {} | dev: {} |", list(&uses.normal), list(&uses.dev))
}

/// Rows by crate, with their lines; `None` without the marks around them.
fn read_table(text: &str) -> Option<Table> {
    let is_mark = |mark: &'static str| move |(_, line): &(usize, &str)| line.trim() == mark;
    let lines: Vec<(usize, &str)> = text.lines().enumerate().collect();
    let begin = lines.iter().position(is_mark(BEGIN))?;
    let end = lines.iter().position(is_mark(END)).filter(|&end| end > begin)?;
    let mut rows = Table::new();
    for (at, line) in &lines[begin..end] {
        let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
        // The heading and the ruler have no name in backticks.
        let name = cells.next().and_then(|cell| cell.strip_prefix('`')?.strip_suffix('`'));
        let Some(name) = name.filter(|_| line.trim_start().starts_with('|')) else { continue };
        let mut uses = Uses::default();
        for cell in cells {
            if let Some(names) = cell.strip_prefix("ours:") {
                uses.normal = read_names(names);
            } else if let Some(names) = cell.strip_prefix("dev:") {
                uses.dev = read_names(names);
            }
        }
        rows.insert(name.to_owned(), (at + 1, uses));
    }
    Some(rows)
}

/// `a, b`, with or without backticks; a dash or nothing means none.
fn read_names(cell: &str) -> BTreeSet<String> {
    let names = cell.split(',').map(|name| name.trim().trim_matches('`'));
    names.filter(|name| !matches!(*name, "" | "—" | "-" | "none")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crates::Dependency;

    fn package(name: &str, normal: &[&str], dev: &[&str]) -> Package {
        let on = |is_dev| move |name: &&str| Dependency { name: (*name).to_owned(), is_dev };
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            features: Vec::new(),
            dependencies: normal.iter().map(on(false)).chain(dev.iter().map(on(true))).collect(),
        }
    }

    fn packages() -> Vec<Package> {
        vec![
            package("firstwrite-core", &["bytes"], &[]),
            package("firstwrite-store", &["firstwrite-core", "rusqlite"], &["firstwrite-testkit"]),
            package("firstwrite-testkit", &["firstwrite-core"], &[]),
        ]
    }

    const GOOD: &str = "\
<!-- rooms:begin -->
| room | may use | tests may use |
| --- | --- | --- |
| `firstwrite-core` | ours: — | dev: — |
| `firstwrite-store` | ours: firstwrite-core | dev: `firstwrite-testkit` |
| `firstwrite-testkit` | ours: firstwrite-core | dev: |
<!-- rooms:end -->
";

    fn findings(text: &str) -> Vec<Finding> {
        table(&Tree::of(&[(FILE, text)]), &packages())
    }

    #[test]
    fn a_true_table_is_good() {
        assert_eq!(findings(GOOD), []);
    }

    #[test]
    fn a_table_that_differs_from_the_manifests_is_found() {
        let less = GOOD.replace("dev: `firstwrite-testkit`", "dev: —");
        assert_eq!(findings(&less)[0].line, 5);
        let more = GOOD.replace("`firstwrite-core` | ours: —", "`firstwrite-core` | ours: x");
        assert_eq!(findings(&more)[0].line, 4);
        let without = GOOD.replace("| `firstwrite-core`", "| firstwrite-core");
        assert!(findings(&without)[0].advice.starts_with("add the row"));
        let strange =
            GOOD.replace("<!-- rooms:end -->", "| `other` | ours: | dev: |\n<!-- rooms:end -->");
        assert_eq!(findings(&strange)[0].line, 7);
        assert_eq!(findings("no marks").len(), 1);
        assert_eq!(table(&Tree::of(&[]), &packages()).len(), 1);
    }

    #[test]
    fn walls_that_are_broken_are_found() {
        assert_eq!(walls(&packages()), []);
        let with = |extra| walls(&[packages(), vec![extra]].concat());
        assert_eq!(with(package("firstwrite", &["firstwrite-testkit"], &[])).len(), 1);
        let sim = package("firstwrite-sim", &["firstwrite-testkit"], &[]);
        assert_eq!(with(sim).len(), 0, "a tool of this repository, which nobody ships");
        assert_eq!(with(package("firstwrite", &["rusqlite"], &[])).len(), 1);
        assert_eq!(with(package("firstwrite-server", &["redis"], &[])).len(), 1);
        assert_eq!(with(package("firstwrite", &["redis"], &[])).len(), 0, "to a carrier, a broker");
        assert_eq!(with(package("firstwrite-wrappers", &["redis"], &[])).len(), 0, "a cache");
        assert_eq!(with(package("firstwrite-wrappers", &["rusqlite"], &[])).len(), 1);
        assert_eq!(with(package("firstwrite-client", &["rusqlite"], &[])).len(), 0, "its own file");
        assert_eq!(with(package("firstwrite-client", &["firstwrite-core"], &[])).len(), 1);
        assert_eq!(with(package("firstwrite-client", &[], &["firstwrite-core"])).len(), 0);
        assert_eq!(with(package("firstwrite-verify", &[], &["firstwrite-core"])).len(), 1);
        assert_eq!(with(package("xtask", &["firstwrite-core"], &[])).len(), 1);
        assert_eq!(with(package("xtask", &["anyhow"], &[])).len(), 0);
        let chaos = package("firstwrite-chaos", &["firstwrite-core"], &[]);
        assert_eq!(with(chaos).len(), 1, "it kills the others, and shares nothing with them");
        let both =
            [package("firstwrite-chaos", &[], &[]), package("xtask", &["firstwrite-chaos"], &[])];
        assert_eq!(walls(&[packages(), both.to_vec()].concat()).len(), 0);
    }
}
