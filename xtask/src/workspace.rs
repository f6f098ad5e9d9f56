//! This repository as cargo sees it: folders, crates, features, dependencies.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use crate::process;

/// The repository the task was started in.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

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

impl Workspace {
    pub(crate) fn load() -> anyhow::Result<Self> {
        let mut command = process::cargo();
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        let text = process::read(&mut command)?;
        let metadata: Value = serde_json::from_str(&text).context("reading cargo metadata")?;
        Self::from_metadata(&metadata).context("cargo metadata lacks an expected member")
    }

    fn from_metadata(metadata: &Value) -> Option<Self> {
        let root = PathBuf::from(metadata["workspace_root"].as_str()?);
        let target = PathBuf::from(metadata["target_directory"].as_str()?);
        let mut packages = metadata["packages"]
            .as_array()?
            .iter()
            .map(|package| Package::from_metadata(package, &root))
            .collect::<Option<Vec<_>>>()?;
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        Some(Self { root, target, packages })
    }

    /// Cargo, at the root of the repository.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = process::cargo();
        command.current_dir(&self.root);
        command
    }

    /// A path as people say it: from the root, where it lies below the root.
    pub(crate) fn spoken(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }
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
            "workspace_root": "/repo",
            "target_directory": "/repo/target",
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
        let workspace = Workspace::from_metadata(&metadata).unwrap();
        let package = &workspace.packages[0];
        assert_eq!(package.manifest, "crates/b/Cargo.toml");
        assert_eq!(package.features, ["default", "x"]);
        assert!(!package.dependencies[0].is_dev && package.dependencies[1].is_dev);
        assert_eq!(workspace.spoken(Path::new("/repo/target/x")), "target/x");
    }
}
