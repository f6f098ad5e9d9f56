//! `cargo xtask demo-check`: the commands the demo prints do what the demo says.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::args::Args;
use crate::clock::wait_until;
use crate::demo::{Backend, Stage};
use crate::engine;
use crate::guard::Guard;
use crate::http::Response;
use crate::packages::{self, CURL};
use crate::place::free_port;
use crate::workspace::{Build, Workspace};

/// The help text of `cargo xtask demo-check`.
pub const HELP: &str = "\
Starts the demo in an empty folder and runs the three curl commands it prints, through `sh -c`, exactly as
printed: the first pays (201), the second replays it byte for byte, the third reuses the key for another
payment and is refused (422, key-reused). Then kill -9, start again, and the second must still replay.

  --store S   sqlite (default), or postgres or mariadb: a server of its own, started by this task
  --release   check the release build";

/// The promise is one second; a loaded machine gets more before it counts as a failure.
const LISTENING_MAX: Duration = Duration::from_secs(5);
/// Maximum time until the commands appear once the demo listens.
const COMMANDS_MAX: Duration = Duration::from_secs(5);

/// Runs `cargo xtask demo-check` with the words behind it.
pub fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let build = Build::of(args.flag("--release"));
    let backend = args.value("--store")?.unwrap_or(Backend::Sqlite);
    args.finish()?;
    packages::ensure(&[CURL])?;
    check(workspace, build, backend, &Guard::start()?)
}

/// Checks the demo on one store; an error if a command does not do what the demo says.
pub fn check(
    workspace: &Workspace,
    build: Build,
    backend: Backend,
    guard: &Guard,
) -> anyhow::Result<()> {
    let name = match backend {
        Backend::Sqlite => "demo-check",
        Backend::Postgres => "demo-check-postgres",
        Backend::MariaDb => "demo-check-mariadb",
    };
    let mut stage = Stage::new(workspace, build, name, guard)?;
    let evidence = workspace.spoken(stage.folder());
    let mut server = engine::of(backend, stage.folder(), guard)?;
    if let Some(server) = &mut server {
        server.start()?;
        server.wait_until_ready()?;
        stage = stage.on(server.address());
    }
    check_on(&stage).with_context(|| format!("see {evidence}"))?;
    drop(server);
    stage.clear();
    Ok(())
}

fn check_on(stage: &Stage<'_>) -> anyhow::Result<()> {
    let port = free_port()?;
    let mut demo = stage.start(port)?;
    let took = demo.wait_until_ready()?;
    println!("listening {:.2} s after the start", took.as_secs_f64());
    ensure!(took <= LISTENING_MAX, "the demo took {:.1} s to listen", took.as_secs_f64());

    let mut commands = Vec::new();
    wait_until(COMMANDS_MAX, || {
        commands = curl_lines(&demo.output());
        commands.len() >= 3
    });
    let output = demo.output();
    ensure!(
        output.contains(&format!("listening on http://127.0.0.1:{port}")),
        "the demo does not say `listening on http://127.0.0.1:{port}`"
    );
    let [first, second, third] = commands.as_slice() else {
        anyhow::bail!(
            "the demo prints {} lines that start with `curl `, not three",
            commands.len()
        );
    };
    let paid = curl(first, stage.folder())?;
    check_payment(&paid).context("the first command")?;
    check_replay(&paid, &curl(second, stage.folder())?).context("the second command")?;
    check_refusal(&curl(third, stage.folder())?).context("the third command")?;

    demo.kill()?;
    let mut demo = stage.start(port)?;
    demo.wait_until_ready().context("after kill -9")?;
    check_replay(&paid, &curl(second, stage.folder())?)
        .context("the second command, after kill -9")?;
    demo.kill()
}

/// The commands a person would copy. Each stands alone on its line.
fn curl_lines(output: &str) -> Vec<String> {
    output
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with("curl "))
        .map(str::to_owned)
        .collect()
}

fn curl(line: &str, folder: &Path) -> anyhow::Result<Response> {
    println!("$ {line}");
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(folder);
    // A machine's own proxy is no part of the command as printed, and cannot reach our loopback.
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    let output = command.output().context("cannot start sh")?;
    ensure!(output.status.success(), "`{line}` failed ({})", output.status);
    let response = Response::from_printed(&output.stdout).with_context(|| {
        format!("`{line}` did not print an answer with its head; is -i missing?")
    })?;
    println!("  {} {}", response.status, String::from_utf8_lossy(&response.body).trim_end());
    Ok(response)
}

fn check_payment(response: &Response) -> anyhow::Result<()> {
    ensure!(response.status == 201, "expected 201, got {}", response.status);
    ensure!(response.header("idempotent-replayed").is_none(), "is marked as a replay");
    Ok(())
}

fn check_replay(first: &Response, response: &Response) -> anyhow::Result<()> {
    ensure!(response.status == first.status, "expected {}, got {}", first.status, response.status);
    let mark = response.header("idempotent-replayed");
    ensure!(mark == Some("true"), "expected `idempotent-replayed: true`, got {mark:?}");
    ensure!(response.body == first.body, "the body differs from the first answer's");
    let same_place = response.header("location") == first.header("location");
    ensure!(same_place, "the location differs from the first answer's");
    Ok(())
}

fn check_refusal(response: &Response) -> anyhow::Result<()> {
    ensure!(response.status == 422, "expected 422, got {}", response.status);
    let media = response.header("content-type").unwrap_or("none");
    ensure!(media.starts_with("application/problem+json"), "expected a problem, got {media}");
    let problem: Value =
        serde_json::from_slice(&response.body).context("the problem is no JSON")?;
    let kind = problem["type"].as_str().unwrap_or_default();
    let is_named = kind.contains("key-reused") || problem["code"] == "key-reused";
    ensure!(is_named, "expected the problem key-reused, got `{kind}`");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(head: &str, body: &str) -> Response {
        Response::from_printed(format!("HTTP/1.1 {head}\r\n\r\n{body}").as_bytes()).unwrap()
    }

    #[test]
    fn commands_are_found_among_other_lines() {
        let output =
            "listening on http://127.0.0.1:1\n\n  curl -i one\ncurl -i two\nuse curl to try\n";
        assert_eq!(curl_lines(output), ["curl -i one", "curl -i two"]);
    }

    #[test]
    fn a_replay_must_be_marked_and_the_same() {
        let paid = answer("201 Created\r\nlocation: /payments/1", "{1}");
        check_payment(&paid).unwrap();
        let good = "201 Created\r\nlocation: /payments/1\r\nidempotent-replayed: true";
        check_replay(&paid, &answer(good, "{1}")).unwrap();
        check_replay(&paid, &answer(good, "{2}")).unwrap_err();
        check_replay(&paid, &paid).unwrap_err();
        check_replay(&paid, &answer(&good.replace("201", "200"), "{1}")).unwrap_err();
        check_replay(&paid, &answer(&good.replace("/1", "/2"), "{1}")).unwrap_err();
        check_payment(&answer(good, "{1}")).unwrap_err();
    }

    #[test]
    fn a_refusal_must_name_its_problem() {
        let head = "422 Unprocessable Entity\r\ncontent-type: application/problem+json";
        check_refusal(&answer(head, r#"{"type":"https://example.org/problems/key-reused"}"#))
            .unwrap();
        check_refusal(&answer(head, r#"{"type":"https://example.org/problems/in-progress"}"#))
            .unwrap_err();
        check_refusal(&answer("422 X\r\ncontent-type: text/plain", "key-reused")).unwrap_err();
        check_refusal(&answer("409 X\r\ncontent-type: application/problem+json", "{}"))
            .unwrap_err();
    }
}
