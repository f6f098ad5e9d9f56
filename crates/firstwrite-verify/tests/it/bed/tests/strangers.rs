//! Tenants and credentials: who may learn what.

use tokio::time::Instant;

use super::super::delays::OTHERS_KEY;
use super::super::{Bed, Defect};
use super::client::Ask;
use super::{Seen, effects, ensure, promises};

promises! {
    nobody_gets_anything_without_credentials: [];
    no_stored_answer_without_credentials: [AuthAfterReplay];
    a_key_is_a_tenants_own: [GlobalKeys, TenantExistence];
}

async fn nobody_gets_anything_without_credentials(bed: Bed) -> Seen {
    let nameless = Ask::order("own").without("Authorization");
    nameless.send(&bed).await?.is_refusal(401)?;
    for other in ["Bearer nobody", "acme", "Basic acme"] {
        nameless.clone().and("Authorization", other).send(&bed).await?.is_refusal(401)?;
    }
    // Also where the key would be refused: who it is comes first.
    nameless.without("Idempotency-Key").send(&bed).await?.is_refusal(401)?;
    effects(&bed, 0)
}

async fn no_stored_answer_without_credentials(bed: Bed) -> Seen {
    let ask = Ask::order("own");
    ask.send(&bed).await?.has_status(201)?;
    ask.clone().without("Authorization").send(&bed).await?.is_refusal(401)?;
    let other = ask.without("Authorization").and("Authorization", "Bearer nobody");
    other.send(&bed).await?.is_refusal(401)
}

async fn a_key_is_a_tenants_own(bed: Bed) -> Seen {
    for (key, body) in [("same", r#"{"amount":100}"#), ("other", r#"{"amount":7}"#)] {
        let own = Ask::order(key).send(&bed).await?;
        own.has_status(201)?;
        let strangers = Ask::order(key).globex().body(body).send(&bed).await?;
        strangers.has_status(201)?;
        ensure(!strangers.is_replay(), || "a stranger gets the stored answer".to_owned())?;
        ensure(own.body != strangers.body, || "a stranger gets the order".to_owned())?;
    }
    effects(&bed, 4)
}

/// What is seen by the time that an answer takes.
pub(super) const SLOWING: &[Defect] = &[Defect::TenantTiming];

/// Not asked of all servers at once, who would slow each other down.
#[tokio::test]
async fn a_strangers_key_takes_no_time() {
    assert_eq!(is_quick(Bed::start(None).await).await, Ok(()));
    for defect in SLOWING {
        let seen = is_quick(Bed::start(Some(*defect)).await).await;
        assert!(seen.is_err(), "{} was not seen", defect.name());
    }
}

/// One quick answer shows that nothing delays it; where something does, there can be none.
///
/// A retry is asked for, since it takes the shortest time.
async fn is_quick(bed: Bed) -> Seen {
    const ROUNDS: usize = 40;
    let ask = Ask::order("taken");
    ask.send(&bed).await?;
    let ask = ask.globex();
    ask.send(&bed).await?;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        ask.send(&bed).await?;
        if began.elapsed() < OTHERS_KEY {
            return Ok(());
        }
    }
    Err(format!("never in less than {OTHERS_KEY:?}"))
}
