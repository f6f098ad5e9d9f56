//! The crates of this repository as cargo sees them: features and dependencies.

use std::path::Path;

use anyhow::Context;
use firstwrite_chaos::process;
use firstwrite_chaos::workspace::Workspace;
use serde_json::Value;

/// One crate of ours.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Relative to the root, with forward slashes.
    pub(crate) manifest: String,
    pub(crate) features: Vec<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

/// Something a crate of ours names in its manifest.
#[derive(Clone, Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) is_dev: bool,
}

/// Reads the manifests of all crates of ours, by name.
pub(crate) fn load(workspace: &Workspace) -> anyhow::Result<Vec<Package>> {
    let mut command = workspace.cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let text = process::read(&mut command)?;
    let metadata: Value = serde_json::from_str(&text).context("reading cargo metadata")?;
    from_metadata(&metadata, &workspace.root).context("cargo metadata lacks an expected member")
}

fn from_metadata(metadata: &Value, root: &Path) -> Option<Vec<Package>> {
    let packages = metadata["packages"].as_array()?.iter();
    let mut packages = packages
        .map(|package| Package::from_metadata(package, root))
        .collect::<Option<Vec<_>>>()?;
    packages.sort_by(|a, b| a.name.cmp(&b.name));
    Some(packages)
}

impl Package {
    fn from_metadata(package: &Value, root: &Path) -> Option<Self> {
        let manifest = Path::new(package["manifest_path"].as_str()?);
        let dependencies = package["dependencies"]
            .as_array()?
            .iter()
            .map(|dependency| {
                Some(Dependency {
                    name: dependency["name"].as_str()?.to_owned(),
                    is_dev: dependency["kind"].as_str() == Some("dev"),
                })
            })
            .collect::<Option<Vec<_>>>()?;
        Some(Self {
            name: package["name"].as_str()?.to_owned(),
            manifest: manifest.strip_prefix(root).unwrap_or(manifest).to_str()?.to_owned(),
            features: package["features"].as_object()?.keys().cloned().collect(),
            dependencies,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_features_and_kinds_are_read() {
        let metadata = serde_json::json!({
            "packages": [{
                "name": "b",
                "manifest_path": "/repo/crates/b/Cargo.toml",
                "features": {"default": ["x"], "x": []},
                "dependencies": [
                    {"name": "a", "kind": null},
                    {"name": "c", "kind": "dev"},
                ],
            }],
        });
        let packages = from_metadata(&metadata, Path::new("/repo")).unwrap();
        let package = &packages[0];
        assert_eq!(package.manifest, "crates/b/Cargo.toml");
        assert_eq!(package.features, ["default", "x"]);
        assert!(!package.dependencies[0].is_dev && package.dependencies[1].is_dev);
    }
}
