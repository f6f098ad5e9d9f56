//! The examples of every help text, run as they are printed: each runs, or is left out by name with the reason.
//! That the command line takes all of them is a test of its own, beside the help texts.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use firstwrite_core::outbox::MessageNumber;
use firstwrite_core::protocol::{self, Reserved};
use firstwrite_core::{FindingKind, Findings, Policy};

use crate::http::post;
use crate::messages::{Fate, leave_messages};
use crate::open_records::{request, with_store};
use crate::payments::ORDER;
use crate::process::{Demo, Folder, stderr, stdout};
use crate::reconcile::Books;

/// Examples that no test runs as they are printed.
const LEFT_OUT: [(&str, &str); 13] = [
    ("firstwrite demo", "a service: the scene of the demo starts it, on a free port"),
    ("firstwrite demo --listen 127.0.0.1:0 --store sqlite:/tmp/demo.db --faults", SERVICE),
    ("firstwrite demo --store postgres://app@127.0.0.1/shop", SERVICE),
    ("firstwrite demo --provider http://127.0.0.1:8090", SERVICE),
    (
        "firstwrite demo-provider --lose-answers every=3 \
         --webhook-url http://127.0.0.1:8080/webhooks/provider",
        SERVICE,
    ),
    (
        "firstwrite gateway --upstream http://127.0.0.1:3000 --tenants authorization --create",
        SERVICE,
    ),
    (
        "firstwrite gateway --upstream http://127.0.0.1:3000 --tenants single --create --operator \
         127.0.0.1:9464",
        SERVICE,
    ),
    (
        "firstwrite gateway --upstream http://127.0.0.1:3000 --create --tenants \
         header=x-tenant,from=10.0.0.0/8",
        SERVICE,
    ),
    (
        "firstwrite gateway --config firstwrite.toml --store postgres://app@db/shop --create",
        SERVICE,
    ),
    ("firstwrite worker --store postgres://app@db/shop", SERVICE),
    ("firstwrite worker --config firstwrite.toml", SERVICE),
    (
        "firstwrite migrate --store postgres://owner@db/shop --grant-to app",
        "it needs a role of a server: the tests of migrate run it there",
    ),
    (
        "firstwrite doctor --store postgres://app@db/shop --expect-standby standby1",
        "it needs a standby: the tests of failing over have one",
    ),
];

const SERVICE: &str = "a service: it runs until it is stopped; tests of its own start it";

/// Parts of examples that say that nothing arrived. It counts from an hour after the last delivery; here, that was a
/// moment ago, so `--force` stands for the hour.
const NOTHING_ARRIVED: [&str; 4] =
    ["keys release", "--not-happened", "--not-delivered", "--refused"];

/// The store of the demo, as examples name it.
const DEMO: &str = "sqlite:firstwrite-demo.db";
/// Addresses of stores in examples of operators, for each of which a file takes its place.
const SERVERS: [&str; 3] =
    ["postgres://app@db/shop", "postgres://owner@db/shop", "sqlite:payments.db"];

#[test]
fn each_example_works_as_printed_or_is_left_out_by_name() {
    let examples = all_examples();
    assert!(examples.len() > 45, "most of them were not found: {examples:#?}");
    let left_out: BTreeSet<&str> = LEFT_OUT.iter().map(|(example, _)| *example).collect();
    for example in &left_out {
        assert!(examples.contains(*example), "no help text has it: {example}");
    }
    let runnable: Vec<&String> =
        examples.iter().filter(|example| !left_out.contains(example.as_str())).collect();
    let scene = DemoScene::new();
    let books = Books::new();
    books.export();
    for example in runnable {
        let ran = if example.contains("reconcile run") {
            run(&books.folder, &format!("FIRSTWRITE_STORE={} {example}", books.folder.store()))
        } else if is_of_demo(example) {
            scene.run(example)
        } else {
            run_on_scratch(example)
        };
        assert!(ran.status.success(), "{example}\n{}{}", stdout(&ran), stderr(&ran));
    }
}

/// The examples of all help texts, each once, without explanations.
fn all_examples() -> BTreeSet<String> {
    let folder = Folder::new();
    let mut found = BTreeSet::new();
    let mut levels = vec![Vec::new()];
    while let Some(level) = levels.pop() {
        let words: Vec<&str> = level.iter().map(String::as_str).chain(["--help"]).collect();
        let help = stdout(&folder.run(&words));
        found.extend(examples(&help));
        for command in commands(&help) {
            levels.push([level.clone(), vec![command]].concat());
        }
    }
    found
}

/// The commands that a help text lists.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = listed.take_while(|line| line.starts_with("  "));
    let names = lines.filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Commands that stand below "Example", with their blanks as a shell would leave them.
fn examples(help: &str) -> Vec<String> {
    let joined = help.replace("\\\n", " ");
    let lines = joined.lines().filter_map(|line| line.strip_prefix("  "));
    let lines = lines.filter(|line| line.starts_with("firstwrite "));
    let commands = lines.map(|line| match line.find("        ") {
        // An explanation stands behind many blanks; what a backslash joins begins with a flag.
        Some(at) if !line[at..].trim_start().starts_with('-') => &line[..at],
        _ => line,
    });
    let spaced = commands.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    spaced.map(|line| line.trim_end_matches(" &").to_owned()).collect()
}

/// Examples that need nothing but a demo that runs.
fn is_of_demo(example: &str) -> bool {
    let reads_only = !example.contains("keys release");
    (example.contains(DEMO) && reads_only)
        || example.starts_with("firstwrite stores")
        || example.starts_with("firstwrite verify")
}

/// A demo with one payment.
struct DemoScene {
    folder: Folder,
    demo: Demo,
    record: String,
}

impl DemoScene {
    fn new() -> Self {
        let folder = Folder::new();
        let mut start = crate::process::firstwrite(&folder);
        start.args(["demo", "--listen", "127.0.0.1:0", "--store", DEMO]);
        // A loaded machine may be slow; the answers are what is looked at.
        let demo = Demo::start(start.env("FIRSTWRITE_WAIT_FOR", "30s"));
        let made = demo.answer(&post("/payments", ORDER).acme().key("order-1"));
        assert_eq!(made.status, 201, "{made:?}");
        let listed = folder.run(&["keys", "list", "--store", DEMO, "--format", "json"]);
        let page: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        let record = page["records"][0]["record_id"].as_str().unwrap().to_owned();
        Self { folder, demo, record }
    }

    /// With the one port and the one id that differ from run to run.
    fn run(&self, example: &str) -> Output {
        let example = example.replace("127.0.0.1:8080", &self.demo.address.to_string());
        run(&self.folder, &example.replace("8fb62d20e1c18e12c4ab64d7a10f2e35", &self.record))
    }
}

/// Runs an example on a store of its own, which has everything that examples name.
fn run_on_scratch(example: &str) -> Output {
    let folder = Folder::new();
    leave_scene(&folder);
    if example.contains("outbox resume") {
        let pause = ["outbox", "pause", "provider", "--store", folder.store(), "--reason", "r"];
        assert!(folder.run(&pause).status.success());
    }
    let mut example = with_store_named(example, folder.store()).replace("redis://cache", DEMO);
    if NOTHING_ARRIVED.iter().any(|part| example.contains(part)) {
        example.push_str(" --force");
    }
    run(&folder, &example)
}

fn with_store_named(example: &str, store: &str) -> String {
    let named = SERVERS.iter().fold(example.to_owned(), |named, at| named.replace(at, store));
    if named.contains("keys release") { named.replace(DEMO, store) } else { named }
}

/// Uncertain records, messages up to number 45, findings up to number 8, settings, and documents of an API.
fn leave_scene(folder: &Folder) {
    const ROUTES: &str = "paths: {/payments: {post: {responses: {'201': {description: made}}}}}";
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("firstwrite.toml", SETTINGS);
    write("openapi.yaml", &format!("openapi: 3.1.0\n{ROUTES}\n"));
    write("openapi.json", r#"{"openapi": "3.1.0", "paths": {"/payments": {"post": {}}}}"#);
    let fate = |number: usize| match number {
        42..=45 => Fate::Unknown,
        1..=3 => Fate::Dead(404),
        _ => Fate::Waiting,
    };
    let keys: Vec<String> = (1..=45).map(|number| format!("order-{number}")).collect();
    let fates: Vec<(&str, Fate)> =
        keys.iter().zip(1..).map(|(key, number)| (key.as_str(), fate(number))).collect();
    leave_messages(folder, &fates);
    with_store(folder, async |store| {
        for key in ["order-1", "order-2"] {
            let policy = Policy::default();
            let reserved = protocol::reserve(&*store, &request(key), &policy, 7).await.unwrap();
            let Reserved::Granted(reservation) = reserved else { panic!("{key} is taken") };
            protocol::mark_uncertain(&*store, reservation, "no answer").await.unwrap();
        }
        let found = (1..=8).map(|number| firstwrite_core::findings::NewFinding {
            kind: FindingKind::Differs,
            subject: format!("message {number}"),
            detail: "another amount".to_owned(),
            record: None,
            message: Some(MessageNumber(number)),
            provider_id: None,
        });
        let found: Vec<_> = found.collect();
        let (findings, now) = (Findings::of(&*store).unwrap(), store.now().await.unwrap());
        findings.note("provider", &found, now).await.unwrap();
    });
    let created = folder.run(&["migrate", "--store", DEMO]);
    assert!(created.status.success(), "{}", stderr(&created));
}

/// Settings for an API of its own, behind a gateway or not.
const SETTINGS: &str = "\
[[gateway.operations]]\noperation = 'POST /payments'\n\
[[gateway.operations]]\noperation = 'POST /v1/payments'\n";

fn run(folder: &Folder, example: &str) -> Output {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_firstwrite"));
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", binary.parent().unwrap().display());
    let mut command = Command::new("sh");
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name).env_remove(name.to_ascii_uppercase());
    }
    command.args(["-c", example]).env("PATH", path).current_dir(folder.path()).output().unwrap()
}
