//! Tenants and credentials: who may learn what.

use std::time::Duration;

use tokio::time::Instant;

use super::super::Bed;
use super::client::Ask;
use super::{Seen, effects, ensure, promises};

promises! {
    nobody_gets_anything_without_credentials: [];
    no_stored_answer_without_credentials: [AuthAfterReplay];
    a_key_is_a_tenants_own: [GlobalKeys, TenantExistence];
    a_strangers_key_takes_no_time: [TenantTiming];
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

/// By the shortest times: whatever else the machine does only makes some of them longer.
async fn a_strangers_key_takes_no_time(bed: Bed) -> Seen {
    const ROUNDS: usize = 6;
    const NOISE: Duration = Duration::from_millis(12);
    let mut shortest = [Duration::MAX; 2];
    for round in 0..ROUNDS {
        Ask::order(&format!("taken-{round}")).send(&bed).await?;
        for (at, key) in ["taken", "free"].into_iter().enumerate() {
            let ask = Ask::order(&format!("{key}-{round}")).globex();
            let began = Instant::now();
            ask.send(&bed).await?;
            shortest[at] = shortest[at].min(began.elapsed());
        }
    }
    let [taken, free] = shortest;
    ensure(taken < free + NOISE, || format!("{taken:?} where it is taken, otherwise {free:?}"))
}
