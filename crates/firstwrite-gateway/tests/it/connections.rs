//! Connections: reused, replaced, drained, and moved to other rules.

use std::sync::Arc;
use std::time::Duration;

use firstwrite::memory_store;
use firstwrite_gateway::{Calling, Drained, Gateway, Listening, Rules};

use crate::client::{Client, ask, post};
use crate::gateway::{anywhere, rules, start, start_on};
use crate::upstream::{Script, Upstream, answer};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test]
async fn a_connection_to_the_upstream_is_used_again() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let mut client = Client::connect(gateway.address()).await;
    for number in 0..5 {
        assert_eq!(client.ask(GET).await.status(), 201);
        assert_eq!(client.ask(&post(&format!("k{number}"), "{}")).await.status(), 201);
    }
    assert_eq!((upstream.connections(), upstream.seen().len()), (1, 10));
}

#[tokio::test]
async fn it_is_used_again_for_other_clients_of_the_same_thread() {
    let upstream = Upstream::start().await;
    for threads in [0, 1] {
        let (listening, store) = (Listening { threads, ..anywhere() }, Arc::new(memory_store()));
        let gateway = Gateway::start(store, &listening, rules(&[&upstream])).await.unwrap();
        for _ in 0..5 {
            assert_eq!(ask(gateway.address(), GET).await.status(), 201);
        }
        assert_eq!(upstream.connections(), threads + 1);
    }
}

#[tokio::test]
async fn one_that_was_closed_or_broke_is_not() {
    let upstream = Upstream::start().await;
    let gateway = start(rules(&[&upstream])).await;
    let closing = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok";
    upstream.does(Script::AnswerAndHangUp(closing.to_owned()));
    for _ in 0..3 {
        assert_eq!(ask(gateway.address(), GET).await.status(), 200);
    }
    assert_eq!((upstream.connections(), upstream.seen().len()), (3, 3));
}

#[tokio::test]
async fn one_that_is_old_is_not_trusted() {
    let upstream = Upstream::start().await;
    let usual = rules(&[&upstream]);
    let calling = Calling { keep_alive: Duration::ZERO, ..usual.calling.clone() };
    let gateway = start(Rules { calling, ..usual }).await;
    for _ in 0..2 {
        ask(gateway.address(), GET).await;
    }
    assert_eq!(upstream.connections(), 2);
}

#[tokio::test]
async fn what_cannot_be_sent_to_one_server_goes_to_another() {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    let both = rules(&[&one, &two]);
    one.stop().await;
    let gateway = start(both).await;
    for number in 0..6 {
        assert_eq!(ask(gateway.address(), &post(&format!("k{number}"), "{}")).await.status(), 201);
    }
    assert_eq!(two.seen().len(), 6);
}

#[tokio::test]
async fn servers_take_turns() {
    let (one, two) = (Upstream::start().await, Upstream::start().await);
    let gateway = start(rules(&[&one, &two])).await;
    for _ in 0..6 {
        ask(gateway.address(), GET).await;
    }
    assert_eq!((one.seen().len(), two.seen().len()), (3, 3));
}

#[tokio::test]
async fn an_answer_that_does_not_come_in_time_is_lost() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let usual = rules(&[&upstream]);
    let calling = Calling { answer_within: Duration::from_millis(50), ..usual.calling.clone() };
    let gateway = start(Rules { calling, ..usual }).await;
    let late = ask(gateway.address(), &post("k", "{}")).await;
    assert_eq!((late.status(), late.code()), (504, "outcome-unknown".to_owned()));
    assert_eq!(ask(gateway.address(), GET).await.status(), 504);
}

#[tokio::test]
async fn stopping_lets_what_is_under_way_end() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let gateway = start(rules(&[&upstream])).await;
    let address = gateway.address();
    let mut idle = Client::connect(address).await;
    let mut busy = Client::connect(address).await;
    busy.send(&post("k", "{}")).await;
    upstream.arrived().await;
    let stopping = tokio::spawn(gateway.stop(Duration::from_secs(20)));
    assert!(idle.is_closed().await, "an idle connection ends at once");
    let late = tokio::net::TcpStream::connect(address).await;
    assert!(late.is_err(), "whoever comes now is refused at once");
    upstream.release();
    assert_eq!(busy.read().await.unwrap().status(), 201);
    assert_eq!(stopping.await.unwrap(), Drained::All);
}

#[tokio::test]
async fn an_attempt_whose_caller_has_hung_up_is_still_under_way() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let gateway = start(rules(&[&upstream])).await;
    let mut gone = Client::connect(gateway.address()).await;
    gone.send(&post("k", "{}")).await;
    upstream.arrived().await;
    drop(gone);
    // The connection has ended; what it began has not.
    let mut idle = Client::connect(gateway.address()).await;
    assert_eq!(idle.ask(&post("k", "{}")).await.code(), "in-progress");
    let cut_off = Drained::CutOff { attempts: 1 };
    assert_eq!(gateway.stop(Duration::from_millis(200)).await, cut_off);
}

#[tokio::test]
async fn stopping_lets_an_attempt_end_whose_caller_has_hung_up() {
    let (upstream, store) = (Upstream::start().await, Arc::new(memory_store()));
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let gateway = start_on(Arc::clone(&store), rules(&[&upstream])).await;
    let mut gone = Client::connect(gateway.address()).await;
    gone.send(&post("k", "{}")).await;
    upstream.arrived().await;
    drop(gone);
    let mut idle = Client::connect(gateway.address()).await;
    assert_eq!(idle.ask(&post("k", "{}")).await.code(), "in-progress");
    let stopping = tokio::spawn(gateway.stop(Duration::from_secs(20)));
    assert!(idle.is_closed().await);
    // No connection is left, and the thread goes on for the attempt's sake.
    upstream.release();
    assert_eq!(stopping.await.unwrap(), Drained::All);
    let next = start_on(store, rules(&[&upstream])).await;
    assert!(ask(next.address(), &post("k", "{}")).await.is_replay());
}

/// An attempt goes on under the rules that it began with.
#[tokio::test]
async fn stopping_waits_for_attempts_from_before_a_reload() {
    for (releases, drained) in [(1, Drained::CutOff { attempts: 1 }), (2, Drained::All)] {
        let (upstream, store) = (Upstream::start().await, Arc::new(memory_store()));
        upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
        let gateway = start_on(Arc::clone(&store), rules(&[&upstream])).await;
        for key in ["k", "another"] {
            let mut gone = Client::connect(gateway.address()).await;
            gone.send(&post(key, "{}")).await;
            upstream.arrived().await;
            drop(gone);
            let mut idle = Client::connect(gateway.address()).await;
            assert_eq!(idle.ask(&post(key, "{}")).await.code(), "in-progress");
            gateway.reload(rules(&[&upstream])).unwrap();
        }
        for _ in 0..releases {
            upstream.release();
            tokio::task::yield_now().await;
        }
        let patience = if releases == 1 { 200 } else { 20_000 };
        assert_eq!(gateway.stop(Duration::from_millis(patience)).await, drained);
        let next = start_on(store, rules(&[&upstream])).await;
        let mut kept = 0;
        for key in ["k", "another"] {
            kept += usize::from(ask(next.address(), &post(key, "{}")).await.is_replay());
        }
        assert_eq!(kept, releases);
    }
}

#[tokio::test]
async fn stopping_has_a_deadline() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let gateway = start(rules(&[&upstream])).await;
    let mut busy = Client::connect(gateway.address()).await;
    busy.send(&post("k", "{}")).await;
    upstream.arrived().await;
    let cut_off = Drained::CutOff { attempts: 1 };
    assert_eq!(gateway.stop(Duration::from_millis(20)).await, cut_off);
}

#[tokio::test]
async fn stopping_in_a_hurry_does_not_wait_and_counts_what_it_cuts_off() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let gateway = start(rules(&[&upstream])).await;
    let mut busy = Client::connect(gateway.address()).await;
    busy.send(&post("k", "{}")).await;
    upstream.arrived().await;
    let stopped = gateway.stop_unless(Duration::MAX, std::future::ready(()));
    assert_eq!(stopped.await, Drained::CutOff { attempts: 1 });
}

#[tokio::test]
async fn other_rules_hold_from_the_next_request_on() {
    let (old, new) = (Upstream::start().await, Upstream::start().await);
    old.does(Script::AnswerLater(answer("201 Created", "", "made")));
    let gateway = start(rules(&[&old])).await;
    let mut client = Client::connect(gateway.address()).await;
    client.send(&post("k", "{}")).await;
    old.arrived().await;
    gateway.reload(rules(&[&new])).unwrap();
    assert_eq!(ask(gateway.address(), GET).await.status(), 201);
    assert_eq!(new.seen().len(), 1);
    old.release();
    assert_eq!(client.read().await.unwrap().status(), 201);
    // The same connection is under the new rules now, and the key still stands.
    assert!(client.ask(&post("k", "{}")).await.is_replay());
    assert_eq!(client.ask(GET).await.status(), 201);
    assert_eq!((old.seen().len(), new.seen().len()), (1, 2));
}

#[tokio::test]
async fn more_than_there_is_room_for_wait_to_be_accepted() {
    let upstream = Upstream::start().await;
    let listening = Listening { connections_max: 2, ..anywhere() };
    let gateway = Gateway::start(Arc::new(memory_store()), &listening, rules(&[&upstream])).await;
    let gateway = gateway.unwrap();
    let mut inside =
        [Client::connect(gateway.address()).await, Client::connect(gateway.address()).await];
    for client in &mut inside {
        assert_eq!(client.ask(GET).await.status(), 201);
    }
    let mut outside = Client::connect(gateway.address()).await;
    outside.send(&post("k", "{}")).await;
    // Those inside are served as before, and nobody hears of the one outside.
    for client in &mut inside {
        assert_eq!(client.ask(GET).await.status(), 201);
    }
    assert_eq!(upstream.seen().len(), 4);
    drop(inside);
    assert_eq!(outside.read().await.unwrap().status(), 201);
}

#[tokio::test]
async fn one_whose_request_is_still_on_its_way_is_not_used_again() {
    let upstream = Upstream::start().await;
    upstream.does(Script::AnswerEarly(answer("413 Payload Too Large", "", "no")));
    let gateway = start(rules(&[&upstream])).await;
    let mut slow = Client::connect(gateway.address()).await;
    slow.send("PUT /big HTTP/1.1\r\nhost: a\r\ncontent-length: 100000\r\n\r\nhalf").await;
    assert_eq!(slow.read().await.unwrap().status(), 413);
    assert_eq!(
        ask(gateway.address(), GET).await.status(),
        413,
        "it does not wait for the slow one"
    );
}
