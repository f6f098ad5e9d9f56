//! `firstwrite verify` let loose on what we offer ourselves, from one process to another.

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::database::on_every_store;
use crate::process::{Demo, Folder, firstwrite, stderr, stdout};

on_every_store! {
    the_demo_keeps_every_promise_that_can_be_seen,
    the_gateway_keeps_every_promise_that_can_be_seen,
}

const ORDER: &str = r#"{"amount":1250,"currency":"EUR","customer":"cus_1"}"#;

/// A server that is killed and started again by a shell script, and ended with the test.
struct Restarted {
    script: PathBuf,
    pid: PathBuf,
    _first: Demo,
}

impl Restarted {
    /// `arguments` start the same server again; the port stays.
    fn new(folder: &Folder, first: Demo, arguments: &[&str]) -> Self {
        let (script, pid) = (folder.path().join("restart.sh"), folder.path().join("server.pid"));
        fs::write(&pid, first.pid().to_string()).unwrap();
        let quoted: Vec<String> = arguments.iter().map(|one| format!("'{one}'")).collect();
        let (binary, listen) = (env!("CARGO_BIN_EXE_firstwrite"), first.address);
        // Its port is free when the last of its threads has ended.
        let lines = format!(
            "pid=$(cat server.pid)\nkill -9 $pid\n\
             while [ $(ls /proc/$pid/task 2> /dev/null | wc -l) -gt 1 ] ||\n\
             grep -q '^State:.[^Z]' /proc/$pid/status 2> /dev/null; do sleep 0.01; done\n\
             '{binary}' {} --listen {listen} > again.log 2>&1 &\necho $! > server.pid\n",
            quoted.join(" ")
        );
        fs::write(&script, lines).unwrap();
        Self { script, pid, _first: first }
    }

    fn command(&self) -> String {
        format!("sh {}", self.script.display())
    }
}

impl Drop for Restarted {
    fn drop(&mut self) {
        let pid = fs::read_to_string(&self.pid).unwrap();
        // It may have ended by itself, if the test failed.
        drop(Command::new("kill").args(["-9", pid.trim()]).output());
    }
}

/// An address of this test's own: on the common one, the port of a server that was killed can be taken
/// by anybody's connection before the server is back.
fn own_address() -> String {
    let [one, two, three, ..] = RandomState::new().hash_one(0).to_ne_bytes();
    format!("127.{}.{two}.{}:0", one.max(1), three.clamp(1, 254))
}

fn the_demo_keeps_every_promise_that_can_be_seen(folder: &Folder) {
    let again = ["demo", "--faults", "--store", folder.store()];
    let demo = start(folder, &again);
    let url = format!("http://{}/payments", demo.address);
    let server = Restarted::new(folder, demo, &again);
    let report = verified(
        folder,
        &[
            &url,
            "--header=Authorization: Bearer demo-acme",
            "--other-tenant-header=Authorization: Bearer demo-globex",
            "--effects-url",
            &url,
            "--slow=X-Demo-Fault: delay=700ms",
            "--fault=X-Demo-Fault: status=503",
            "--restart-cmd",
            &server.command(),
        ],
    );
    assert_eq!(left_out(&report, "does not apply"), ["replay-cookies", "replay-hop-by-hop"]);
    let not_asked = [
        "credentials-revoked",
        "store-away",
        "retention-over",
        "operations-declared",
        "operations-protected",
    ];
    assert_eq!(left_out(&report, "not asked"), not_asked, "{report:#}");
}

fn start(folder: &Folder, arguments: &[&str]) -> Demo {
    Demo::start(firstwrite(folder).args(arguments).args(["--listen", &own_address()]))
}

/// In front of a provider that does everything twice that it is asked for twice.
fn the_gateway_keeps_every_promise_that_can_be_seen(folder: &Folder) {
    let provider = folder.provider(&["--keys", "ignore"]);
    let upstream = format!("http://{}", provider.address);
    let again = [
        "gateway",
        "--tenants",
        "authorization",
        "--upstream",
        &upstream,
        "--create",
        "--store",
        folder.store(),
    ];
    let gateway = start(folder, &again);
    let url = format!("http://{}/v1/payments", gateway.address);
    let server = Restarted::new(folder, gateway, &again);
    let report = verified(
        folder,
        &[
            &url,
            "--header=Authorization: Bearer one",
            "--other-tenant-header=Authorization: Bearer two",
            "--effects-url",
            &format!("{upstream}/v1/payments?limit=1000"),
            "--effects-pointer=/data",
            "--restart-cmd",
            &server.command(),
        ],
    );
    let passed = report["passed"].as_u64().unwrap();
    assert!(passed >= 40, "{passed} passed: {report:#}");
}

/// A report with the best grade, by the strictest profile, and in time.
fn verified(folder: &Folder, arguments: &[&str]) -> Value {
    let mut all = vec!["verify", "--profile=strict", "--format=json", "--body", ORDER];
    all.extend(arguments);
    let output = folder.run(&all);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| {
        panic!("no report: {error}: {}{}", stdout(&output), stderr(&output))
    });
    let failed: Vec<&Value> = checks(&report, "failed").collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert_eq!((&report["grade"], output.status.code()), (&Value::from("A"), Some(0)));
    report
}

fn checks<'a>(report: &'a Value, verdict: &'a str) -> impl Iterator<Item = &'a Value> {
    let checks = report["checks"].as_array().unwrap().iter();
    checks.filter(move |check| check["verdict"] == verdict)
}

fn left_out<'a>(report: &'a Value, verdict: &'a str) -> Vec<&'a str> {
    checks(report, verdict).map(|check| check["id"].as_str().unwrap()).collect()
}

/// An API without protection fails, says where, and ends CI; every form of the report is written.
#[test]
fn an_api_without_protection_is_told_so_in_every_form() {
    let folder = Folder::new();
    let provider = folder.provider(&["--keys", "ignore"]);
    let url = format!("http://{}/v1/payments", provider.address);
    let output = folder.run(&[
        "verify",
        &url,
        "--body",
        ORDER,
        "--single-tenant",
        "--seed=7",
        "--report=r.html",
        "--report=r.xml",
        "--report=r.json",
    ]);
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    let told = stdout(&output);
    for expected in
        ["FAIL  replay-effects", "3 effects", "grade F", "seed 7", "mend replay-effects first"]
    {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let report: Value = serde_json::from_str(&read("r.json")).unwrap();
    assert_eq!((&report["grade"], &report["seed"]), (&Value::from("F"), &Value::from(7)));
    assert!(read("r.xml").contains("<failure type=\"critical\""));
    assert!(read("r.html").contains("grade F"));
    let lenient = folder.run(&["verify", &url, "--body", ORDER, "--min-grade=F"]);
    assert_eq!(lenient.status.code(), Some(0));
}

#[test]
fn what_cannot_be_asked_is_refused_in_a_line() {
    let folder = Folder::new();
    let complaint = |arguments: &[&str]| -> (Option<i32>, String) {
        let output: Output = folder.run(&[&["verify"], arguments].concat());
        assert_eq!(stdout(&output), "", "{arguments:?}");
        (output.status.code(), stderr(&output))
    };
    for (arguments, code, word) in [
        (&["http://192.0.2.1/"][..], 2, "--i-own-this"),
        (&["orders"], 2, "lacks http://"),
        (&["http://127.0.0.1:9/", "--only=races"], 2, "--list"),
        (&["http://127.0.0.1:9/", "--report=r.pdf"], 2, ".html, .json or .xml"),
        (&["http://127.0.0.1:9/", "--body=@missing.json"], 2, "missing.json"),
        (&["http://127.0.0.1:9/", "--body={}", "--vary=/amount"], 2, "--vary"),
        (&["http://127.0.0.1:9/", "--header=nonsense"], 2, "a header is a name and a value"),
        (&["http://127.0.0.1:9/", "--effects-url=http://192.0.2.1/"], 2, "--i-own-this"),
        (&["http://127.0.0.1:9/"], 1, "is it running?"),
        (&[], 2, "<URL>"),
    ] {
        let (found, told) = complaint(arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {told}");
        assert!(told.contains(word), "{arguments:?}: {told}");
    }
    let listed = folder.run(&["verify", "--list"]);
    assert!(stdout(&listed).contains("race-effects"), "{}", stdout(&listed));
    let listed: Value =
        serde_json::from_slice(&folder.run(&["verify", "--list", "--format=json"]).stdout).unwrap();
    assert!(listed.as_array().unwrap().len() > 40);
}
