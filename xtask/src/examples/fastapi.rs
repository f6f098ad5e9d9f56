//! The API in Python that completes its own records: killed between its commit and its answer, and not told
//! that it committed.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use firstwrite_chaos::clock::wait_until;
use firstwrite_chaos::http::{Client, Request, Response};
use firstwrite_chaos::place::free_port;
use firstwrite_chaos::postgres::Node;
use serde_json::Value;

use super::Ground;
use super::actor::Actor;

const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn check(ground: &Ground<'_>) -> anyhow::Result<()> {
    let mut node = Node::create("postgres", &ground.folder, &[], ground.guard)?;
    node.start()?;
    node.wait_until_ready()?;
    let api = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    // First: it makes the tables that the API completes its records in.
    let gateway = ground.gateway(api, &node.address())?;
    let mut client = Client::new(gateway.address, PATIENCE);

    let mut dying = start(ground, &node, api, &[("DIE", "after-commit")])?;
    let first = client.send(&pay("order-1")).context("the first payment")?;
    ensure!(wait_until(PATIENCE, || dying.has_ended()), "the API did not kill itself");
    ensure!(first.status == 201, "answered {} though it was committed", first.status);
    drop(dying);

    let running = start(ground, &node, api, &[])?;
    let again = client.send(&pay("order-1")).context("the retry")?;
    ensure!(is_replay(&again), "the retry ran: {again:?}");
    ensure!((again.status, &again.body) == (201, &first.body), "the retry got another answer");
    let other = client.send(&pay("order-2")).context("another payment")?;
    ensure!(other.status == 201 && !is_replay(&other), "another payment: {other:?}");
    drop(running);

    let _api = start(ground, &node, api, &[("LOSE", "commit-answer")])?;
    let repeated =
        client.send(&pay("order-3")).context("a payment whose transaction is repeated")?;
    ensure!(repeated.status == 201, "the repetition was answered {}", repeated.status);
    let again = client.send(&pay("order-3")).context("the retry of it")?;
    ensure!(is_replay(&again) && again.body == repeated.body, "not the first answer: {again:?}");

    let get = Request { method: "GET", path: "/payments".into(), headers: vec![], body: vec![] };
    let listed: Vec<Value> = serde_json::from_slice(&client.send(&get)?.body)?;
    ensure!(listed.len() == 3, "{} payments were made, not 3", listed.len());
    println!(
        "fastapi: died between commit and answer, and was answered for; repeated a transaction that had \
         been committed, and paid once: {} payments",
        listed.len()
    );
    Ok(())
}

fn start<'a>(
    ground: &'a Ground<'_>,
    node: &Node<'_>,
    api: SocketAddr,
    environment: &[(&str, &str)],
) -> anyhow::Result<Actor<'a>> {
    let mut command = Command::new(ground.python.join("uvicorn"));
    command.args(["app:app", "--port", &api.port().to_string()]).current_dir(&ground.sources);
    command.env("DATABASE", node.address()).env("PYTHONDONTWRITEBYTECODE", "1");
    ground.start("api", command.envs(environment.iter().copied()), api.port())
}

fn pay(key: &str) -> Request {
    let headers = vec![
        ("idempotency-key", key.to_owned()),
        ("authorization", "Bearer ada".to_owned()),
        ("content-type", "application/json".to_owned()),
    ];
    let body = br#"{"amount":4990}"#.to_vec();
    Request { method: "POST", path: "/payments".to_owned(), headers, body }
}

fn is_replay(response: &Response) -> bool {
    response.header("idempotent-replayed") == Some("true")
}
