//! The delivering worker as a victim, the provider it pays, and what must hold however it died.
//!
//! Three truths are compared: what the outbox says, what the provider's own ledger says, and which
//! messages there were.

use std::collections::BTreeMap;
use std::env;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use firstwrite::carrier::http::{HttpDestination, ProbeSettings};
use firstwrite::store::{Access, open};
use firstwrite::worker::{Deliver, Destination};
use firstwrite::{Key, Tenant};
use firstwrite_core::outbox::{MessageQuery, MessageState, MessageView, Terms, protocol, wire_key};
use firstwrite_core::{Message, Store};
use firstwrite_provider::{Behaviour, Keys, Options, Provider};
use libtest_mimic::{Failed, Trial};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::cases::Told;
use crate::places::{Backend, Ground, Place, block_on};
use crate::task::{CrashAt, Role, Run, Task};
use crate::victim::TENANT;

/// What the provider does with keys, and what the worker knows of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Custom {
    /// It recognises a key for a day.
    Honours,
    /// It does not look at keys.
    Ignores,
    /// It does not look at keys, but says what it has done under one.
    Answers,
    /// It does not look at keys, and the worker believes that it does: a control.
    Misjudged,
}

/// Where a victim delivers to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct To {
    url: String,
    custom: Custom,
}

/// How many messages there are in a story.
const MESSAGE_COUNT: usize = 3;
/// When the next worker comes: after the lease of a claim, and after the pauses of deliveries.
const HEIRS_COME_AFTER: [u64; 3] = [60, 180, 4000];
/// Deliveries are on loopback; the lease follows from it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A provider for one story.
struct Paid {
    runtime: Runtime,
    provider: Provider,
    custom: Custom,
}

impl Paid {
    fn start(place: &Place, custom: Custom) -> Self {
        let runtime = Runtime::new().unwrap();
        let ledger = place.effects().with_extension("ledger");
        let provider = runtime.block_on(Provider::start(Options::new(ledger))).unwrap();
        let keys = if custom == Custom::Honours { Keys::Honour } else { Keys::Ignore };
        provider.behave(Behaviour { keys, ..Behaviour::default() }).unwrap();
        Self { runtime, provider, custom }
    }

    fn to(&self) -> To {
        To { url: self.provider.url(), custom: self.custom }
    }

    /// What the ledger holds under each key.
    fn effects(&self) -> BTreeMap<String, Vec<String>> {
        let mut effects: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for payment in self.provider.payments() {
            effects
                .entry(payment.idempotency_key.unwrap_or_default())
                .or_default()
                .push(payment.id);
        }
        effects
    }

    fn stop(self) {
        self.runtime.block_on(self.provider.stop());
    }
}

/// Writes messages down: as a victim of its own, because a file has one writer.
pub(crate) async fn prepare(store: &dyn Store, prefix: &str) {
    let tenant = Tenant::new(TENANT).unwrap();
    for number in 0..MESSAGE_COUNT {
        let key = Key::new(&format!("{prefix}-{number}")).unwrap();
        let payload = format!(r#"{{"amount":{},"currency":"EUR"}}"#, 100 + number);
        let message = Message::new(&tenant, &key, "pay", "provider", Bytes::from(payload)).unwrap();
        store.outbox().unwrap().enqueue(&message).await.unwrap();
    }
}

/// Delivers until nothing is due.
pub(crate) async fn work(store: Arc<dyn Store>, to: &To) {
    let day = Duration::from_hours(24);
    let (dedupe_for, can_be_asked) = match to.custom {
        Custom::Honours | Custom::Misjudged => (day, false),
        Custom::Ignores => (Duration::ZERO, false),
        Custom::Answers => (Duration::ZERO, true),
    };
    let terms = Terms { timeout: TIMEOUT, dedupe_for, can_be_asked, ..Terms::default() };
    let mut http = HttpDestination::new(&format!("{}/v1/payments", to.url))
        .timeout(TIMEOUT)
        .provider_id("/id".parse().unwrap())
        .allow_network("127.0.0.0/8".parse().unwrap());
    if can_be_asked {
        let url = format!("{}/v1/payments?idempotency_key={{key}}", to.url);
        let [list, key, id] =
            ["/data", "/idempotency_key", "/id"].map(|pointer| pointer.parse().unwrap());
        let list = ProbeSettings::list(&url, list, key, id).empty_is_absent();
        http = http.probe(list);
    }
    let provider = Destination::new("provider", terms, Arc::new(http.build().unwrap()));
    Deliver::new(store, vec![provider]).unwrap().run_until_idle().await.unwrap();
}

/// Has a worker die at `crash_at` and others come after it.
pub(crate) fn tell(place: &Place, custom: Custom, crash_at: CrashAt<'_>) -> Told {
    let paid = Paid::start(place, custom);
    run(place, &task(place, Role::Enqueue, 0, paid.to()), None);
    let victim = run(place, &task(place, Role::Deliver, 1, paid.to()), crash_at);
    if crash_at.is_some() && !victim.killed {
        paid.stop();
        return Told { victim, judged: Ok(()) };
    }
    for seconds_later in HEIRS_COME_AFTER {
        run(place, &task(place, Role::Deliver, seconds_later, paid.to()), None);
    }
    let judged = judge(&messages(place), &paid.effects(), custom);
    paid.stop();
    Told { victim, judged }
}

/// No effect twice, no message lost, and what may have happened is shown.
fn judge(
    messages: &[MessageView],
    effects: &BTreeMap<String, Vec<String>>,
    custom: Custom,
) -> Result<(), String> {
    if messages.is_empty() {
        return Err("no message was written".to_owned());
    }
    for message in messages {
        let wire_key = wire_key(&message.derived_key, message.record);
        let ids = effects.get(&wire_key).map_or(&[][..], Vec::as_slice);
        let story = || format!("{message:?} has the effects {ids:?}");
        if ids.len() > 1 {
            return Err(format!("an effect happened twice: {}", story()));
        }
        match message.state {
            MessageState::Delivered => {
                let known =
                    message.receipt.as_ref().and_then(|receipt| receipt.provider_id.clone());
                if known.as_ref() != ids.first() || known.is_none() {
                    return Err(format!("delivered, and the provider does not agree: {}", story()));
                }
            }
            // Only where nobody recognises a repetition and nobody can be asked.
            MessageState::Unknown if custom == Custom::Ignores => {}
            MessageState::Waiting
            | MessageState::Sending
            | MessageState::Unknown
            | MessageState::Dead
            | MessageState::Refused
            | MessageState::Dropped => return Err(format!("a message was lost: {}", story())),
        }
    }
    let expected = messages.iter().map(|message| wire_key(&message.derived_key, message.record));
    let expected: Vec<String> = expected.collect();
    match effects.keys().find(|key| !expected.contains(key)) {
        Some(key) => Err(format!("an effect without a message: {key}")),
        None => Ok(()),
    }
}

/// Kills workers at random, each a little later than the one before it, while they deliver; then lets
/// one finish.
fn kill_at_random(ground: &Ground, backend: Backend, custom: Custom) -> Result<String, Failed> {
    let kills = env::var("FIRSTWRITE_TEST_KILLS").ok().and_then(|text| text.parse().ok());
    let kills: u64 = kills.unwrap_or(KILLS_DEFAULT);
    let place = ground.private_place(backend);
    let paid = Paid::start(&place, custom);
    let (mut died, mut life) = (0, Duration::ZERO);
    for number in 0..=kills {
        let seconds_later = number * 60;
        run(&place, &task(&place, Role::Enqueue, seconds_later, paid.to()), None);
        let task = task(&place, Role::Deliver, seconds_later + 1, paid.to());
        if number == 0 {
            // One that is left alone tells how long the others have.
            let began_at = stopwatch();
            run(&place, &task, None);
            life = began_at.elapsed();
            continue;
        }
        let mut victim = task.start(None);
        std::thread::park_timeout(life.mul_f64(fastrand::f64() * 1.2));
        died += u64::from(kill(&mut victim));
        place.bury(&task.key);
    }
    for seconds_later in HEIRS_COME_AFTER {
        let last = (kills + 1) * 60 + seconds_later;
        run(&place, &task(&place, Role::Deliver, last, paid.to()), None);
    }
    let messages = messages(&place);
    let judged = judge(&messages, &paid.effects(), custom);
    paid.stop();
    judged?;
    let count = |state| messages.iter().filter(|message| message.state == state).count();
    let (delivered, unknown) = (count(MessageState::Delivered), count(MessageState::Unknown));
    if messages.len() as u64 != (kills + 1) * MESSAGE_COUNT as u64 {
        return Err("messages are missing".into());
    }
    Ok(format!("{died} of {kills} killed; {delivered} delivered once, {unknown} held as unknown"))
}

/// Enough for CI to see that the machinery works; a thousand by `FIRSTWRITE_TEST_KILLS`.
const KILLS_DEFAULT: u64 = 10;

#[expect(clippy::disallowed_methods, reason = "how long a process lives is real time")]
fn stopwatch() -> std::time::Instant {
    std::time::Instant::now()
}

fn kill(victim: &mut Child) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    // One that has ended by itself cannot be killed.
    drop(victim.kill());
    victim.wait().unwrap().signal() == Some(9)
}

pub(crate) fn trials(backends: &[Backend], ground: &Arc<Ground>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for backend in backends.iter().copied() {
        for custom in [Custom::Honours, Custom::Ignores, Custom::Answers] {
            let ground = Arc::clone(ground);
            let name = format!("kills at random: {backend}: a provider that {custom}");
            trials.push(Trial::test(name.clone(), move || {
                let told = kill_at_random(&ground, backend, custom)?;
                println!("{name}: {told}");
                Ok(())
            }));
        }
    }
    trials
}

fn task(place: &Place, role: Role, seconds_later: u64, to: To) -> Task {
    Task {
        role,
        store: place.store.clone(),
        key: format!("m-{:016x}", fastrand::u64(..)),
        effects: place.effects(),
        seconds_later,
        flaw: None,
        to: Some(to),
    }
}

fn run(place: &Place, task: &Task, crash_at: CrashAt<'_>) -> Run {
    let run = task.run(crash_at);
    place.bury(&task.key);
    run
}

fn messages(place: &Place) -> Vec<MessageView> {
    block_on(async {
        let store = open(&place.store, Access::ReadOnly).await.unwrap();
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let query = MessageQuery { after, limit: 1000, ..MessageQuery::default() };
            let page = protocol::messages(store.outbox().unwrap(), &query).await.unwrap();
            all.extend(page.messages);
            after = page.next;
            if after.is_none() {
                return all;
            }
        }
    })
}

impl std::fmt::Display for Custom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Honours => "honours keys",
            Self::Ignores => "ignores keys",
            Self::Answers => "ignores keys and can be asked",
            Self::Misjudged => "is believed to honour keys",
        })
    }
}
