//! Moving house: from one store into another under traffic, and then without the first.

mod copying;
mod decisions;
mod large;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::http::Response;
use crate::process::{Demo, Folder, stderr, stdout};
use crate::scene::{Scene, pay, said};

/// What every key was first answered with.
type Answers = Mutex<BTreeMap<String, (u16, Vec<u8>)>>;

/// Keys that stand in the old store before anybody thinks of moving.
const KEYS_BEFORE: usize = 60;
/// Keys that two gateways in opposite directions race for.
const KEYS_RACED: usize = 60;
const LANES: usize = 3;

fn start(scene: &Scene<'_>, store: &str, more: &[&str]) -> Demo {
    let mut command = crate::process::firstwrite(scene.folder);
    command.args(["gateway", "--create", "--config", "gateway.toml", "--listen", "127.0.0.1:0"]);
    command.args(["--tenants", "authorization"]);
    Demo::start(command.args(["--store", store, "--log", "off"]).args(more))
}

/// The store that records move into: neither the gateway nor the copying makes it.
fn create(folder: &Folder, store: &str) {
    let created = folder.run(&["migrate", "--store", store]);
    assert!(created.status.success(), "{}", stderr(&created));
}

/// Asks until there is an answer, and holds it against the first that anybody got.
fn ask(gateway: &Demo, key: &str, answers: &Answers) {
    let is_answer = |answer: &Response| match answer.status {
        201 => true,
        409 => false,
        _ => panic!("{key}: {answer:?}"),
    };
    let answer = gateway.answer_when(&pay(key), is_answer);
    let (status, body) = said(&answer);
    let mut answers = answers.lock().unwrap();
    let first = answers.entry(key.to_owned()).or_insert_with(|| (status, body.to_vec()));
    assert_eq!((first.0, &*first.1), (status, body), "{key} is answered in two ways");
}

fn migrate(folder: &Folder, from: &str, to: &str, more: &[&str]) -> serde_json::Value {
    let words = ["keys", "migrate", "--from", from, "--to", to, "--format", "json"];
    let moved = folder.run(&[&words[..], more].concat());
    assert!(moved.status.success(), "{}{}", stdout(&moved), stderr(&moved));
    serde_json::from_slice(&moved.stdout).unwrap()
}

/// Both directions at once, the copying under traffic, and then the new store alone.
fn every_key_keeps_its_first_answer(folder: &Folder, old: &str, new: &str) {
    create(folder, new);
    let scene = Scene::new(folder, "");
    let answers = Answers::default();
    let before = start(&scene, old, &["--moving-to", new]);
    for number in 0..KEYS_BEFORE {
        ask(&before, &format!("before-{number}"), &answers);
    }
    let after = start(&scene, new, &["--moving-from", old]);
    thread::scope(|scope| {
        for _ in 0..LANES {
            for gateway in [&before, &after] {
                let answers = &answers;
                scope.spawn(move || {
                    for number in 0..KEYS_RACED {
                        ask(gateway, &format!("raced-{number}"), answers);
                        ask(gateway, &format!("before-{}", number % KEYS_BEFORE), answers);
                    }
                });
            }
        }
    });
    before.terminate();
    assert!(before.end().success());
    // Traffic goes on while the records are copied.
    let is_moved = AtomicBool::new(false);
    let summary = thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                ask(&after, &format!("during-{number}"), &answers);
                ask(&after, &format!("before-{}", number % KEYS_BEFORE), &answers);
                if is_moved.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let summary = migrate(folder, old, new, &[]);
        is_moved.store(true, Ordering::SeqCst);
        summary
    });
    let copied = summary["copied"].as_u64().unwrap();
    assert!(copied >= KEYS_BEFORE as u64, "{summary}");
    assert_eq!((&summary["left"], &summary["differing"]), (&0.into(), &0.into()), "{summary}");
    let again = migrate(folder, old, new, &[]);
    assert_eq!((&again["copied"], &again["there"]), (&0.into(), &copied.into()), "{again}");
    after.terminate();
    assert!(after.end().success());
    let alone = start(&scene, new, &[]);
    let keys: Vec<String> = answers.lock().unwrap().keys().cloned().collect();
    for key in &keys {
        ask(&alone, key, &answers);
        assert_eq!(scene.effects_of(key).len(), 1, "{key}");
    }
    assert_eq!(scene.upstream.effects().len(), keys.len());
}

#[test]
fn from_redis_to_postgres_every_key_keeps_its_first_answer() {
    let (Some(old), Some(new)) = (Folder::on_redis(), Folder::on_postgres()) else { return };
    every_key_keeps_its_first_answer(&old, old.store(), new.store());
}

#[test]
fn from_postgres_to_redis_every_key_keeps_its_first_answer() {
    let (Some(old), Some(new)) = (Folder::on_postgres(), Folder::on_redis()) else { return };
    every_key_keeps_its_first_answer(&old, old.store(), new.store());
}

/// An SQLite file has one user who writes: one gateway gives way to the other, and the copying reads beside it.
#[test]
fn a_file_is_left_step_by_step() {
    let folder = Folder::new();
    let scene = Scene::new(&folder, "");
    let (old, new) = ("sqlite:old.db", "sqlite:new.db");
    create(&folder, new);
    let answers = Answers::default();
    let steps: [(&str, &[&str]); 3] =
        [(old, &[]), (old, &["--moving-to", new]), (new, &["--moving-from", old])];
    for (step, (store, more)) in steps.into_iter().enumerate() {
        let mut gateway = start(&scene, store, more);
        if step > 0 {
            gateway.lines_until(|line| line.starts_with("moving ") && line.contains("sqlite:"));
        }
        for number in 0..10 {
            for before in 0..=step {
                ask(&gateway, &format!("step-{before}-{number}"), &answers);
            }
        }
        gateway.terminate();
        assert!(gateway.end().success());
    }
    let summary = migrate(&folder, old, new, &["--wait", "0s"]);
    assert_eq!((&summary["copied"], &summary["left"]), (&20.into(), &0.into()), "{summary}");
    let alone = start(&scene, new, &[]);
    for number in 0..10 {
        for step in 0..3 {
            ask(&alone, &format!("step-{step}-{number}"), &answers);
        }
    }
    assert_eq!(scene.upstream.effects().len(), 30);
}

#[test]
fn what_cannot_be_moved_is_refused() {
    let folder = Folder::new();
    let same = ["keys", "migrate", "--from", "sqlite:a.db", "--to", "sqlite:a.db"];
    let refused = folder.refuse(&same);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("same store"), "{}", stderr(&refused));
    let absent =
        folder.refuse(&["keys", "migrate", "--from", "sqlite:a.db", "--to", "sqlite:b.db"]);
    assert_eq!(absent.status.code(), Some(1), "{}", stderr(&absent));
    assert!(!folder.path().join("a.db").exists() && !folder.path().join("b.db").exists());
    let upstream = [
        "gateway",
        "--tenants",
        "single",
        "--upstream",
        "http://127.0.0.1:9",
        "--store",
        "sqlite:a.db",
    ];
    let itself = folder.refuse(&[&upstream[..], &["--moving-from", "sqlite:a.db"]].concat());
    assert!(stderr(&itself).contains("into itself"), "{}", stderr(&itself));
}

/// The file's word counts where no flag is given, and only one of the two may stand there.
#[test]
fn the_config_file_names_the_other_store_too() {
    let folder = Folder::new();
    let (old, new) = ("sqlite:old.db", "sqlite:new.db");
    create(&folder, new);
    let answers = Answers::default();
    let mut scene = Scene::new(&folder, "");
    for (key, url, store, said) in [
        ("moving_to", new, old, "moving to: sqlite:new.db"),
        ("moving_from", old, new, "moving from: sqlite:old.db"),
    ] {
        scene = Scene::before(&folder, scene.upstream, &format!("{key} = '{url}'\n"));
        let mut gateway = start(&scene, store, &[]);
        gateway.lines_until(|line| line.starts_with(said));
        ask(&gateway, "first", &answers);
        ask(&gateway, key, &answers);
        gateway.terminate();
        assert!(gateway.end().success());
    }
    assert_eq!(scene.upstream.effects().len(), 3, "a key of the old store ran again");
    // A flag for one way takes the place of the file's word for the other.
    let mut gateway = start(&scene, old, &["--moving-to", new]);
    gateway.lines_until(|line| line.starts_with("moving to: sqlite:new.db"));
    ask(&gateway, "moving_from", &answers);
    gateway.terminate();
    assert!(gateway.end().success());
    assert_eq!(scene.upstream.effects().len(), 3);
    let both = format!("moving_to = '{old}'\nmoving_from = '{old}'\n");
    let scene = Scene::before(&folder, scene.upstream, &both);
    let arguments = ["gateway", "--tenants", "single", "--config", "gateway.toml", "--store", new];
    let refused = scene.folder.refuse(&arguments);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("exclude each other"), "{}", stderr(&refused));
}

/// The keys that were used in the old store would run again in the new one as well.
#[test]
fn settings_that_the_old_store_remembers_hold_in_the_new_one() {
    let folder = Folder::new();
    let (old, new) = ("sqlite:old.db", "sqlite:new.db");
    create(&folder, new);
    let mut scene = Scene::new(&folder, "");
    let first = start(&scene, old, &[]);
    first.terminate();
    assert!(first.end().success());
    let moving = [
        "gateway",
        "--config",
        "gateway.toml",
        "--listen",
        "127.0.0.1:0",
        "--tenants",
        "authorization",
        "--store",
        new,
        "--moving-from",
        old,
    ];
    scene = Scene::before(&folder, scene.upstream, "forward_key = 'original'\n");
    let refused = folder.refuse(&moving);
    assert!(stderr(&refused).contains("forward_key was \"derived\""), "{}", stderr(&refused));
    scene = Scene::before(&folder, scene.upstream, "");
    let moved = start(&scene, new, &["--moving-from", old]);
    moved.terminate();
    assert!(moved.end().success());
    let _changed = Scene::before(&folder, scene.upstream, "forward_key = 'original'\n");
    let alone = folder.refuse(&moving[..9]);
    assert!(stderr(&alone).contains("forward_key was \"derived\""), "{}", stderr(&alone));
}

crate::database::on_redis! {
    a_gateway_says_that_its_store_remembers_no_settings,
}

fn a_gateway_says_that_its_store_remembers_no_settings(folder: &Folder) {
    let _scene = Scene::new(folder, "");
    let log = folder.path().join("gateway.log");
    let mut command = crate::process::firstwrite(folder);
    command.args(["gateway", "--create", "--config", "gateway.toml", "--listen", "127.0.0.1:0"]);
    command.args(["--tenants", "authorization", "--store", folder.store(), "--log", "warn"]);
    let gateway = Demo::logging_to(&mut command, std::fs::File::create(&log).unwrap());
    gateway.terminate();
    assert!(gateway.end().success());
    let said = std::fs::read_to_string(&log).unwrap();
    let warnings = said.lines().filter(|line| line.contains("remembers no settings")).count();
    assert_eq!(warnings, 1, "{said}");
}
