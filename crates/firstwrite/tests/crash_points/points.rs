//! The crash points there are, as the sources name them: a new one is tested by itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The name of every crash point, and where it stands.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) name: String,
    pub(crate) file: String,
}

/// Reads `crates/*/src`.
pub(crate) fn all() -> Vec<Point> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut points = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        read(&entry.unwrap().path().join("src"), &mut points);
    }
    points.sort_by(|one, other| one.name.cmp(&other.name));
    points
}

fn read(folder: &Path, points: &mut Vec<Point>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, points);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let code = fs::read_to_string(&path).unwrap();
            for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
                let Some((_, after)) = line.split_once("crash_point!(\"") else { continue };
                let (name, _) = after.split_once('"').unwrap();
                points.push(Point { name: name.to_owned(), file: path.display().to_string() });
            }
        }
    }
}

/// Every name is in kebab case and stands in one place.
pub(crate) fn check_names(points: &[Point]) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for Point { name, file } in points {
        let is_kebab = name
            .split('-')
            .all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase()));
        if !is_kebab {
            return Err(format!("`{name}` in {file} is not in kebab case"));
        }
        if !names.insert(name) {
            return Err(format!("`{name}` in {file} is the name of another place already"));
        }
    }
    Ok(())
}
