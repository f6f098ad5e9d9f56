//! The cache in Redis in front of a gateway's PostgreSQL, across a fail-over to a standby that was behind.

use std::net::SocketAddr;

use crate::gateway_telemetry::metrics;
use crate::postgres_server::PostgresServer;
use crate::process::{Demo, Folder};
use crate::redis_history::Server as RedisServer;
use crate::scene::{Scene, pay, said};

/// A gateway, and where its metrics are.
fn started(scene: &Scene<'_>) -> (Demo, SocketAddr) {
    let mut gateway = Demo::start(scene.command("127.0.0.1:0").args(["--log", "off"]));
    let lines = gateway.lines_until(|line| line.starts_with("operator:"));
    let line = lines.last().unwrap().strip_prefix("operator: http://").unwrap();
    let operator = line.split('/').next().unwrap().parse().unwrap();
    (gateway, operator)
}

fn hits(operator: SocketAddr) -> u64 {
    let metrics = metrics(operator);
    let name = "firstwrite_cache_requests_total{result=\"hit\"} ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

#[test]
fn across_a_fail_over_the_cache_answers_and_never_with_what_was_lost() {
    let (Some(mut primary), Some(redis)) = (PostgresServer::start(), RedisServer::start()) else {
        return;
    };
    let folder = Folder::new();
    let cache = format!("operator = '127.0.0.1:0'\ncache = 'redis://127.0.0.1:{}'\n", redis.port);
    let mut standby = PostgresServer::absent();
    let scene = Scene::new(&folder, &cache).through(format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        primary.port, standby.port
    ));
    let gateways = [started(&scene), started(&scene)];
    let (one, _) = &gateways[0];

    // The standby has the one, and not the other.
    let kept = one.answer(&pay("kept"));
    standby.copy(&primary);
    let lost = one.answer(&pay("lost"));
    assert_eq!((kept.status, lost.status), (201, 201));
    for (gateway, operator) in &gateways {
        for _ in 0..3 {
            assert_eq!(said(&gateway.answer(&pay("kept"))), said(&kept));
            assert_eq!(said(&gateway.answer(&pay("lost"))), said(&lost));
        }
        assert!(hits(*operator) > 0, "the cache was of use");
    }

    primary.crash();
    standby.take_over();
    for (gateway, operator) in &gateways {
        // The server that answers now is another one, which a gateway learns from its first word.
        let unknown = gateway.answer_when(&pay("unknown"), |answer| answer.status != 503);
        assert_eq!(unknown.status, 409, "{unknown:?}");
        let before = hits(*operator);
        let refused = gateway.answer(&pay("lost"));
        assert_eq!(refused.status, 409, "answered from Redis: {refused:?}");
        assert_eq!(hits(*operator), before, "no entry of the lost history was used");
        for _ in 0..3 {
            assert_eq!(said(&gateway.answer(&pay("kept"))), said(&kept));
        }
        assert!(hits(*operator) > before, "the cache is of use again");
    }
    for (key, count) in [("kept", 1), ("lost", 1), ("unknown", 0)] {
        assert_eq!(scene.effects_of(key).len(), count, "{key}");
    }
}
