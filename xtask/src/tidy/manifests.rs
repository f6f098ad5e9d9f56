//! Rules about Cargo.toml files.

use super::Finding;
use super::files::Tree;
use crate::crates::Package;

const ROOT: &str = "Cargo.toml";

/// One line of a dependency table.
struct Entry<'a> {
    line: usize,
    table: &'a str,
    name: &'a str,
    value: &'a str,
}

/// Dependencies stand in the order of their names.
pub(super) fn sorted(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in manifests(tree, packages) {
        let entries = entries(text);
        for pair in entries.windows(2) {
            let [before, after] = pair else { continue };
            if before.table == after.table && before.name > after.name {
                findings.push(Finding::new(
                    path,
                    after.line,
                    format!("put `{}` before `{}`", after.name, before.name),
                    "two branches that add a line each then rarely touch the same place",
                ));
            }
        }
    }
    findings
}

/// Versions stand in the workspace's table, and crates refer to it.
pub(super) fn versions(tree: &Tree, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in manifests(tree, packages) {
        for entry in entries(text).iter().filter(|entry| entry.table != "workspace.dependencies") {
            // One of ours that only tests use: without a version, cargo leaves it out of a package, which can then be
            // made before the other is published.
            let is_ours_for_tests =
                entry.table.ends_with("dev-dependencies") && entry.value.starts_with("{ path = \"");
            if !is_ours_for_tests && !entry.value.contains("workspace = true") {
                findings.push(Finding::new(
                    path,
                    entry.line,
                    format!(
                        "write `{}.workspace = true` and put the version into {ROOT}",
                        entry.name
                    ),
                    "one version of everything, raised in one place",
                ));
            }
        }
    }
    findings
}

/// The root's manifest and those of the crates.
fn manifests<'a>(
    tree: &'a Tree,
    packages: &'a [Package],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let paths =
        packages.iter().map(|package| package.manifest.as_str()).filter(|path| *path != ROOT);
    let paths = [ROOT].into_iter().chain(paths);
    paths.filter_map(|path| tree.file(path).map(|file| (path, file.text.as_str())))
}

fn entries(text: &str) -> Vec<Entry<'_>> {
    let (mut entries, mut table, mut depth) = (Vec::new(), "", 0);
    for (at, line) in text.lines().enumerate() {
        let is_inside = depth > 0;
        let code = line.split(" #").next().unwrap_or_default().trim();
        depth += code.matches(['[', '{']).count();
        depth -= code.matches([']', '}']).count().min(depth);
        if is_inside || code.is_empty() || code.starts_with('#') {
            continue;
        }
        if let Some(name) = code.strip_prefix('[') {
            table = name.trim_end_matches(']');
            if let Some((table, name)) = table.rsplit_once('.')
                && is_dependencies(table)
            {
                // A table of its own, `[dependencies.name]`; its lines are not read further.
                entries.push(Entry { line: at + 1, table, name, value: "a table of its own" });
            }
        } else if is_dependencies(table)
            && let Some((name, value)) = code.split_once('=')
        {
            let (name, value) = match name.trim().strip_suffix(".workspace") {
                // The value of `name.workspace = true`, as if it were spelled out.
                Some(name) if value.trim() == "true" => (name, "workspace = true"),
                _ => (name.trim(), value.trim()),
            };
            entries.push(Entry { line: at + 1, table, name, value });
        }
    }
    entries
}

fn is_dependencies(table: &str) -> bool {
    let last = table.rsplit('.').next().unwrap_or_default();
    matches!(last, "dependencies" | "dev-dependencies" | "build-dependencies")
}

#[cfg(test)]
mod tests {
    use super::*;

    type ManifestRule = fn(&Tree, &[Package]) -> Vec<Finding>;

    fn lines(text: &str, rule: ManifestRule) -> Vec<usize> {
        let package = Package {
            name: "a".to_owned(),
            manifest: "crates/a/Cargo.toml".to_owned(),
            features: Vec::new(),
            dependencies: Vec::new(),
        };
        let root = "[workspace.dependencies]\nanyhow = \"1\"\nbytes = \"1\"\n";
        let tree = Tree::of(&[(ROOT, root), ("crates/a/Cargo.toml", text)]);
        rule(&tree, &[package]).into_iter().map(|finding| finding.line).collect()
    }

    const GOOD: &str = "\
[package]
name = \"a\"
[features]
z = []
a = [\"dep:bytes\"]
[dependencies]
anyhow.workspace = true
bytes = { workspace = true, features = [
  \"x\",
  \"a = b\",
] } # why
[dev-dependencies]
anyhow.workspace = true
";

    #[test]
    fn a_sorted_manifest_is_good() {
        assert!(lines(GOOD, sorted).is_empty());
        assert!(lines(GOOD, versions).is_empty());
    }

    #[test]
    fn a_line_out_of_order_is_found() {
        let text = "[dependencies]\nbytes.workspace = true\nanyhow.workspace = true\n";
        assert_eq!(lines(text, sorted), [3]);
        let text = "[target.'cfg(unix)'.dependencies]\nb.workspace = true\na.workspace = true\n";
        assert_eq!(lines(text, sorted), [3]);
    }

    #[test]
    fn a_version_outside_the_workspace_is_found() {
        let text = "[dev-dependencies]\na = { path = \"../a\" }\nb = \"1\"\n";
        assert_eq!(lines(text, versions), [3]);
        let text = "[dependencies]\na = \"1\"\nb = { version = \"1\" }\nc.workspace = true\nd = { path = \"../d\" }\n[dependencies.e]\nversion = \"1\"\n";
        assert_eq!(lines(text, versions), [2, 3, 5, 6]);
    }
}
