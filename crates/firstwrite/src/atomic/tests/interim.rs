//! Answers that a message brings: the caller waits for them a little, and retries get them later.

use std::sync::Arc;
use std::time::Duration;

use firstwrite_core::BoxFuture;
use firstwrite_core::outbox::{Carrier, ClaimedMessage, Delivery, Ending, Probed, Receipt, Terms};

use super::app::{App, Kind};
use crate::worker::{Deliver, Destination};

/// A mailer that ends every delivery in one way.
#[derive(Debug)]
struct Mailer(Ending);

impl Carrier for Mailer {
    fn carry<'a>(&'a self, _claimed_message: &'a ClaimedMessage) -> BoxFuture<'a, Delivery> {
        Box::pin(async { Delivery::new(self.0.clone(), "as told") })
    }

    fn probe<'a>(&'a self, _claimed_message: &'a ClaimedMessage) -> Option<BoxFuture<'a, Probed>> {
        None
    }
}

fn arrives() -> Ending {
    Ending::Delivered(Receipt { provider_id: Some("mail-7".to_owned()) })
}

async fn deliver(app: &App, ending: Ending) {
    let terms = Terms { dedupe_for: Duration::from_hours(24), ..Terms::default() };
    let mailer = Destination::new("mailer", terms, Arc::new(Mailer(ending)));
    let deliver = Deliver::new(Arc::new(app.store.memory.clone()), vec![mailer]).unwrap();
    deliver.run_once().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_can_wait_gets_the_final_answer_first_and_every_time() {
    for kind in Kind::ALL {
        let app = App::new(kind);
        let caller = app.clone();
        let waiting = tokio::spawn(async move { caller.send("k", "later").await });
        // It has committed and waits.
        for _ in 0..20 {
            tokio::task::yield_now().await;
            tokio::time::advance(Duration::from_millis(5)).await;
        }
        deliver(&app, arrives()).await;
        assert_eq!(waiting.await.unwrap(), "201 sent as mail-7 kept");
        assert_eq!(app.send("k", "later").await, "201 sent as mail-7 kept again");
        assert_eq!(app.effects(), (1, 1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_cannot_wait_gets_the_interim_answer_and_a_retry_the_final_one() {
    for kind in Kind::ALL {
        let app = App::new(kind);
        assert_eq!(app.send("k", "later").await, "202 \"on its way\"");
        assert_eq!(app.send("k", "later").await, "202 \"on its way\" again");
        deliver(&app, Ending::Unknown).await;
        assert_eq!(app.send("k", "later").await, "202 \"on its way\" again", "{kind:?}");
        tokio::time::advance(Duration::from_secs(2)).await;
        deliver(&app, arrives()).await;
        for _ in 0..2 {
            assert_eq!(app.send("k", "later").await, "201 sent as mail-7 kept again");
        }
        assert_eq!(app.send("k", "other").await, "422 key-reused");
        assert_eq!(app.effects(), (1, 1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_final_answer_too() {
    for kind in Kind::ALL {
        let app = App::new(kind);
        assert_eq!(app.send("k", "later at once").await, "202 \"on its way\"");
        deliver(&app, Ending::Refused).await;
        assert_eq!(app.send("k", "later at once").await, "402 nobody takes it kept again");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_interim_is_left_as_it_is() {
    let app = App::new(Kind::Closure);
    assert_eq!(app.send("k", "book").await, "201 1 kept");
    deliver(&app, arrives()).await;
    assert_eq!(app.send("k", "book").await, "201 1 kept again");
}
