//! `WorkerThreads` with real connections: who gets which, who is woken, and how they end.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;

use super::*;

/// A client, and the server's end of its connection.
async fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (client, accepted) = tokio::join!(connecting, listener.accept());
    (client.unwrap(), accepted.unwrap().0)
}

/// Waits far longer than a thread takes for immediate work.
async fn soon<T>(done: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), done).await.expect("a thread sleeps on")
}

async fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

#[tokio::test]
async fn connections_are_shared_out_evenly_and_stay_where_they_are() {
    let (threads, listener) = (WorkerThreads::start(3).unwrap(), listener().await);
    let served: Arc<Mutex<BTreeMap<usize, usize>>> = Arc::default();
    let met = Arc::new(Barrier::new(10));
    for _ in 0..9 {
        let (_client, stream) = pair(&listener).await;
        let (served, met) = (Arc::clone(&served), Arc::clone(&met));
        let serve = move |_stream| async move {
            let before = current();
            *served.lock().unwrap().entry(before).or_default() += 1;
            // All are there before the first has ended.
            met.wait().await;
            assert_eq!(current(), before);
        };
        threads.serve(stream, serve).unwrap();
    }
    soon(met.wait()).await;
    assert_eq!(*served.lock().unwrap(), BTreeMap::from([(1, 3), (2, 3), (3, 3)]));
}

#[tokio::test]
async fn a_connection_that_ended_leaves_its_place() {
    let (threads, listener) = (WorkerThreads::start(2).unwrap(), listener().await);
    let (told, mut hear) = mpsc::unbounded_channel();
    for _ in 0..6 {
        let (_client, stream) = pair(&listener).await;
        let told = told.clone();
        threads.serve(stream, move |_| async move { told.send(current()).unwrap() }).unwrap();
        let thread = soon(hear.recv()).await.unwrap();
        // The place is given up by the same poll that told, after it.
        soon(async {
            while threads.0[thread - 1].load.load(Ordering::Relaxed) > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    assert!(threads.0.iter().all(|thread| thread.load.load(Ordering::Relaxed) == 0));
}

#[tokio::test]
async fn without_lanes_connections_are_served_where_they_are_accepted() {
    let (threads, listener) = (WorkerThreads::start(0).unwrap(), listener().await);
    let (told, mut hear) = mpsc::unbounded_channel();
    let (_client, stream) = pair(&listener).await;
    let here = std::thread::current().id();
    let serve =
        move |_| async move { told.send((current(), std::thread::current().id())).unwrap() };
    threads.serve(stream, serve).unwrap();
    assert_eq!(hear.recv().await.unwrap(), (0, here));
}

#[tokio::test]
async fn what_runs_on_a_lane_ends_with_it() {
    let (threads, listener) = (WorkerThreads::start(1).unwrap(), listener().await);
    let (alive, mut ended) = mpsc::channel::<()>(1);
    let (_client, stream) = pair(&listener).await;
    let serve = move |_| async move {
        std::future::pending::<()>().await;
        drop(alive);
    };
    threads.serve(stream, serve).unwrap();
    drop(threads);
    assert_eq!(soon(ended.recv()).await, None);
}

#[tokio::test]
async fn nobody_who_is_woken_from_elsewhere_sleeps_on() {
    const TASKS: usize = 50;
    const ROUNDS: usize = 200;
    let (threads, listener) = (WorkerThreads::start(2).unwrap(), listener().await);
    let mut asked = Vec::new();
    let mut answers = JoinSet::new();
    for _ in 0..TASKS {
        let (_client, stream) = pair(&listener).await;
        let (ask, mut hear) = mpsc::unbounded_channel::<usize>();
        let (answer, mut answered) = mpsc::unbounded_channel::<usize>();
        let serve = move |_| async move {
            while let Some(number) = hear.recv().await {
                answer.send(number).unwrap();
            }
        };
        threads.serve(stream, serve).unwrap();
        asked.push(ask);
        answers.spawn(async move {
            for round in 0..ROUNDS {
                assert_eq!(answered.recv().await, Some(round));
            }
        });
    }
    // All of them at once, as a store answers a batch, from a thread that is no thread.
    let asking = std::thread::spawn(move || {
        for round in 0..ROUNDS {
            for ask in &asked {
                ask.send(round).unwrap();
            }
        }
    });
    asking.join().unwrap();
    assert_eq!(soon(answers.join_all()).await.len(), TASKS);
}
