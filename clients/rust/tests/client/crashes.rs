//! Processes that die again and again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use firstwrite_client::{Clock as _, Step};
use futures_util::future::{Either, select};
use serde_json::Value;

use crate::world::{Act, World, always, open};

/// Milliseconds at which marks are written by processes that die as soon as their mark is durable.
async fn marks(random: f64, count: usize) -> Vec<u128> {
    let hangs = || Act::After(Duration::MAX, Box::new(Act::Lost));
    let world = World::new((0..count).map(|_| hangs()));
    let marks = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..count {
        let (clock, told) = (world.clock.clone(), Arc::clone(&marks));
        let (died, death) = futures_channel::oneshot::channel::<()>();
        let died = Mutex::new(Some(died));
        let client = world
            .builder()
            .on_event(move |event| {
                if event.step == Step::Marked {
                    told.lock().unwrap().push(clock.elapsed().as_millis());
                    drop(died.lock().unwrap().take());
                }
            })
            .randomness(always(random))
            .build();
        let pay = open(&client, "cart").await;
        let sent = Box::pin(pay.send_for(Duration::from_mins(10)));
        let Either::Left(_) = select(death, sent).await else { panic!("nobody died") };
    }
    Arc::into_inner(marks).unwrap().into_inner().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_after_each_mark_does_not_send_at_each_start() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors/crash.json");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = document["cases"].as_array().unwrap();
    assert!(!cases.is_empty());
    for case in cases {
        let expected = case["expect_ms"].as_array().unwrap();
        let expected: Vec<u128> = expected.iter().map(|ms| ms.as_u64().unwrap().into()).collect();
        let told = marks(case["random"].as_f64().unwrap(), expected.len()).await;
        assert_eq!(told, expected, "{}", case["name"]);
    }
}
