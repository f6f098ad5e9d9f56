//! Several tasks and processes on one intent: one request at a time in a process, one end for all.

use firstwrite_client::{EndKind, Error};
use futures_util::future::join_all;

use crate::world::{Act, World, answer, open, problem, seconds};

#[tokio::test(start_paused = true)]
async fn tasks_of_one_process_send_it_once_and_all_get_its_end() {
    let world = World::new([Act::After(seconds(3), Box::new(answer(201, &[])))]);
    let client = world.client();
    let sends = (0..20).map(|_| {
        let client = client.clone();
        async move { open(&client, "cart").await.send().await.unwrap() }
    });
    let ends = join_all(sends).await;
    assert!(ends.iter().all(|end| *end == ends[0]));
    assert_eq!(world.server.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_whose_time_is_up_does_not_wait_for_another() {
    let world = World::new([Act::After(seconds(3), Box::new(answer(201, &[])))]);
    let pay = world.open("cart").await;
    let (slow, quick) = tokio::join!(pay.send(), pay.send_for(seconds(1)));
    assert_eq!(slow.unwrap().kind(), EndKind::Done);
    assert_eq!(quick.unwrap_err().pending().unwrap().attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn the_first_end_stands_for_all_processes() {
    // One process waits for the answer of the first request, the other gets the second one's before.
    let world = World::new([Act::After(seconds(9), Box::new(answer(422, &[]))), answer(201, &[])]);
    let (one, other) = (world.open("cart").await, world.open("cart").await);
    let (one, other) = tokio::join!(one.send(), async {
        tokio::task::yield_now().await;
        other.send().await
    });
    assert_eq!(other.unwrap().kind(), EndKind::Done);
    assert_eq!(one.unwrap().kind(), EndKind::Done);
    assert_eq!(world.open("cart").await.send().await.unwrap().kind(), EndKind::Done);
}

#[tokio::test(start_paused = true)]
async fn an_answer_clears_no_doubt_that_another_process_made() {
    // One is told that nothing ran, while the request of the other is still under way.
    let world = World::new([
        Act::After(seconds(2), Box::new(problem(429, "rate-limited", true))),
        Act::After(seconds(9999), Box::new(Act::Lost)),
    ]);
    let (one, other) = (world.open("cart").await, world.open("cart").await);
    let (first, _) =
        tokio::join!(one.send_for(seconds(2) + std::time::Duration::from_millis(1)), async {
            tokio::task::yield_now().await;
            tokio::time::timeout(seconds(5), other.send()).await.unwrap_err()
        });
    assert!(first.unwrap_err().pending().unwrap().is_in_doubt);
    assert!(one.snapshot().await.unwrap().is_in_doubt);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_another_process_acknowledged_is_told_all_the_same() {
    let world = World::new([Act::After(seconds(9), Box::new(answer(201, &[]))), answer(201, &[])]);
    let (one, other) = (world.open("cart").await, world.open("cart").await);
    let (one, ()) = tokio::join!(one.send(), async {
        tokio::task::yield_now().await;
        assert_eq!(other.send().await.unwrap().kind(), EndKind::Done);
        other.acknowledge().await.unwrap();
    });
    assert_eq!(one.unwrap().kind(), EndKind::Done);
    assert!(world.client().find("cart").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_of_an_earlier_life_changes_nothing() {
    let slow = |time| Act::After(seconds(time), Box::new(answer(201, &[])));
    let world = World::new([slow(20), answer(201, &[]), slow(40)]);
    let (one, other) = (world.open("cart").await, world.open("cart").await);
    let (one, ()) = tokio::join!(one.send(), async {
        // While the first request lasts, another process sends, and the application is done with this life.
        tokio::task::yield_now().await;
        assert_eq!(other.send().await.unwrap().kind(), EndKind::Done);
        other.acknowledge().await.unwrap();
        // The next life has come as far as the first when the late answer arrives.
        let next = world.open("cart").await;
        assert!(tokio::time::timeout(seconds(30), next.send_for(seconds(35))).await.is_err());
        let snapshot = next.snapshot().await.unwrap();
        assert_eq!((snapshot.attempts, snapshot.end), (1, None));
    });
    assert_eq!(one.unwrap().kind(), EndKind::Done);
    assert!(matches!(other.send().await, Err(Error::NoIntent { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nothing_ran_refuses_nothing_while_another_process_may_have_run_it() {
    // Alone, the first answer would be a refusal with a safe new key; but another request is under way.
    let world = World::new([
        Act::After(seconds(2), Box::new(problem(400, "key-invalid", false))),
        Act::After(seconds(9), Box::new(answer(201, &[]))),
    ]);
    let (one, other) = (world.open("cart").await, world.open("cart").await);
    let (one, _) = tokio::join!(one.send(), async {
        tokio::task::yield_now().await;
        other.send().await
    });
    let one = one.unwrap();
    assert_eq!((one.kind(), one.is_new_key_safe()), (EndKind::Unknown, false));
    let draft = world.client().intent("cart").post_json(crate::world::URL, &serde_json::json!({}));
    assert!(matches!(draft.supersede().await, Err(Error::NewKeyUnsafe { .. })));
}

#[tokio::test(start_paused = true)]
async fn of_two_answers_the_later_time_to_come_back_and_the_later_expiry_stand() {
    let expires =
        |hours| crate::world::NOON.after(std::time::Duration::from_hours(hours)).to_string();
    let (early, late) = (expires(2), expires(3));
    let interim = |after, expires| {
        let headers = [
            ("idempotency-interim", "true"),
            ("retry-after", after),
            ("idempotency-expires", expires),
        ];
        answer(202, &headers)
    };
    // The one that is written last asks for less.
    let world = World::new([
        Act::After(seconds(3), Box::new(interim("5", &early))),
        Act::After(seconds(2), Box::new(interim("600", &late))),
    ]);
    let (one, other) = (world.open("cart").await, world.open("cart").await);
    let (one, other) = tokio::join!(one.send_for(seconds(4)), async {
        tokio::task::yield_now().await;
        other.send_for(seconds(4)).await
    });
    assert!(one.is_err() && other.is_err());
    let snapshot = world.open("cart").await.snapshot().await.unwrap();
    assert!(snapshot.wait_left > seconds(590), "{:?}", snapshot.wait_left);
    assert_eq!(snapshot.key_expires_at.unwrap().to_string(), late);
}

#[tokio::test(start_paused = true)]
async fn a_write_of_the_queue_beside_an_attempt_makes_no_doubt() {
    // The hook's note has another revision, but no attempt was begun by anybody else.
    let world = World::new([Act::After(seconds(2), Box::new(problem(400, "key-invalid", false)))]);
    let client = world.client();
    let queue = client.queue(());
    let draft = || client.intent("cart").post_json(crate::world::URL, &crate::world::order());
    queue.enqueue("lane", draft()).await.unwrap();
    let (ran, ()) = tokio::join!(queue.run_once(), async {
        tokio::task::yield_now().await;
        queue.enqueue("lane", draft()).await.unwrap();
    });
    ran.unwrap();
    let end = client.find("cart").await.unwrap().unwrap().send().await.unwrap();
    assert_eq!((end.kind(), end.is_new_key_safe()), (EndKind::Refused, true));
}
