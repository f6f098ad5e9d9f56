//! Every target of `fuzz/`, driven without coverage, from the examples that stand there.

use std::fs;
use std::path::{Path, PathBuf};

use firstwrite_testkit::fuzz::{self, Target};

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn all() -> Vec<Target> {
    let crates: [&[Target]; 8] = [
        fuzz::TARGETS,
        firstwrite::fuzzing::TARGETS,
        firstwrite_core::fuzzing::TARGETS,
        firstwrite_gateway::fuzzing::TARGETS,
        firstwrite_server::fuzzing::TARGETS,
        firstwrite_store::fuzzing::TARGETS,
        firstwrite_verify::fuzzing::TARGETS,
        firstwrite_wrappers::fuzzing::TARGETS,
    ];
    crates.concat()
}

fn drive(name: &str) {
    let target =
        all().into_iter().find(|(known, _)| *known == name).expect("there is such a target");
    let files = fs::read_dir(corpus().join(name)).expect("every target has examples");
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let examples: Vec<Vec<u8>> =
        paths.iter().map(|path| fs::read(path).expect("it can be read")).collect();
    let examples: Vec<&[u8]> = examples.iter().map(Vec::as_slice).collect();
    assert!(!examples.is_empty(), "{name} has no examples");
    fuzz::drive(target, &examples);
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        const DRIVEN: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            drive(stringify!($name));
        })*
    };
}

targets! {
    key, fingerprint, head, jws, claims, jwks, answer, csv, strict_json, stored_outcome, stored_answers,
    stored_fingerprint, redis_record, envelope, address, document, config, store_url, network, tenants,
}

#[test]
fn no_target_is_left_out() {
    let mut known: Vec<&str> = all().iter().map(|(name, _)| *name).collect();
    let mut driven = DRIVEN.to_vec();
    known.sort_unstable();
    driven.sort_unstable();
    assert_eq!(known, driven);
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/targets");
    for name in known {
        assert!(programs.join(format!("{name}.rs")).is_file(), "cargo fuzz does not know {name}");
    }
}
