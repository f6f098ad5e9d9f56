//! Over seeded ledgers, accounts and moments of looking: no reconciliation causes a second effect, frees a
//! key whose effect exists, or completes one whose effect does not. Each rule, planted wrong, is caught.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "each planted rule is wrong in one thing, and right in all others"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use firstwrite::reconcile::{Made, Paging, Rules, Source, Window};
use firstwrite_core::outbox::{MessageNumber, wire_key};
use firstwrite_core::reconcile::{
    Action, Class, Contradiction, Difference, MatchedBy, Ours, Sight, Standing, Subject, Theirs,
    Verdict, compare, distrust_future,
};
use firstwrite_core::{Key, RecordId, Tenant, Timestamp};
use firstwrite_testkit::accounts::{Account, Entry, Status};

use crate::fake_accounts::{Served, csv, http};
use crate::stand::HOUR;

const SEEDS: u64 = 150;

/// A rule that is planted wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Plant {
    /// An absence acts in spite of this.
    Ignores(Contradiction),
    /// An account reaches to the moment at which it was read.
    ReachesToNow,
    /// An entry older than its request proves it.
    OlderIsProof,
    /// An effect that two requests could claim proves the first.
    SharedIsProof,
    /// Whatever is in the account was made.
    FailedIsMade,
    /// An entry that is not decided was made.
    PendingIsMade,
    /// A list without a cursor has one page, which reaches to now.
    PagingIsGuessed,
    /// Entries are reported at once.
    NoGrace,
    /// A date in the future is believed.
    FutureIsBelieved,
    /// Entries of one id are one entry.
    SharedIdIsRepetition,
    /// A record that was copied to another store in the middle of the world is as young as the copy, and the account is asked
    /// for from the grace before it.
    CopyIsYoung,
}

impl Plant {
    /// `Contradiction::SharedId` is not among them: behind it, entries that share an id still count each by itself,
    /// and are named or nameless. That they do is planted as `SharedIdIsRepetition`.
    const ALL: [Self; 16] = [
        Self::Ignores(Contradiction::MissingThere),
        Self::Ignores(Contradiction::Differs),
        Self::Ignores(Contradiction::ForeignKey),
        Self::Ignores(Contradiction::NoMatch),
        Self::Ignores(Contradiction::NoneBefore),
        Self::Ignores(Contradiction::Nameless),
        Self::ReachesToNow,
        Self::OlderIsProof,
        Self::SharedIsProof,
        Self::FailedIsMade,
        Self::PendingIsMade,
        Self::PagingIsGuessed,
        Self::NoGrace,
        Self::FutureIsBelieved,
        Self::SharedIdIsRepetition,
        Self::CopyIsYoung,
    ];

    /// What the planted rule makes of a verdict.
    fn action(self, verdict: &Verdict, our: &Ours) -> Action {
        let is_in_doubt = our.standing == Standing::InDoubt;
        let differs_in = |difference| verdict.differences == [difference] && is_in_doubt;
        let is_nameless = verdict.class == Class::Likely && verdict.matched_by.is_none();
        let is_undecided =
            verdict.class == Class::Late && verdict.matched_by == Some(MatchedBy::Key);
        match self {
            Self::Ignores(why) if verdict.contradiction == Some(why) => Action::NotArrived,
            Self::Ignores(Contradiction::ForeignKey) if is_nameless => Action::NotArrived,
            Self::OlderIsProof if differs_in(Difference::Older) => Action::Arrived,
            Self::SharedIsProof if differs_in(Difference::Shared) => Action::Arrived,
            Self::PendingIsMade if is_undecided && is_in_doubt => Action::Arrived,
            _ => verdict.action,
        }
    }
}

/// What is true of an entry of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    Paid,
    NotPaid,
    Pending,
}

/// Contents of our books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Messages with amounts, and no currency.
    Messages,
    /// The same with a currency, which the account has too.
    WithCurrency,
    /// Messages that say nothing of amounts.
    WithoutAmounts,
    /// Uncertain and completed records: they know neither amounts nor the provider's ids.
    Records,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Records,
        Self::Messages,
        Self::WithCurrency,
        Self::Records,
        Self::Messages,
        Self::WithoutAmounts,
    ];

    /// Returns true if these books can tell that this account is wrong. Nothing but an amount tells a payment that
    /// was filed under the key of another from that one's own.
    fn can_judge(self, account: Account) -> bool {
        account != Account::MisfiledKeys || matches!(self, Self::Messages | Self::WithCurrency)
    }
}

#[derive(Clone)]
pub(crate) struct World {
    kind: Kind,
    pub(crate) ours: Vec<Ours>,
    pub(crate) truths: Vec<Truth>,
    pub(crate) ledger: Vec<Entry>,
    pub(crate) now: Timestamp,
    window: Window,
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_mins(minutes)
}

impl World {
    /// The world of a seed; every kind of books has its turn.
    pub(crate) fn new(seed: u64) -> Self {
        let kinds = Kind::ALL.len() as u64;
        let turn = usize::try_from(seed % kinds).expect("it is a place of the array");
        Self::of_messages(seed * 31 + 7).with(Kind::ALL[turn])
    }

    #[expect(clippy::too_many_lines, reason = "a world in the order in which it is drawn")]
    fn of_messages(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut at = Timestamp::from_millis(1_800_000_000_000);
        let (mut ours, mut truths, mut ledger) = (Vec::new(), Vec::new(), Vec::new());
        let tenant = Tenant::new("acme").expect("it is a name");
        let arrived_of_ten = random.u64(0..10);
        let pause_max = if random.bool() { 120 } else { 12 };
        let pay = |ledger: &mut Vec<Entry>, key: &str, amount, at, status| {
            let id = format!("pay_{}", ledger.len());
            ledger.push(Entry { id: id.clone(), key: key.to_owned(), amount, at, status });
            id
        };
        for number in 0..random.i64(1..20) {
            at = at.plus(minutes(random.u64(1..pause_max)));
            let long = "x".repeat(random.usize(0..12));
            let client_key = Key::new(&format!("Order-{number}{long}")).expect("it is a key");
            let record = RecordId::of(&tenant, &client_key);
            let key = wire_key(&format!("{}:charge", client_key.as_str()), record);
            let amount = [500, 701, 900][random.usize(0..3)];
            // An earlier life of the key, which its retention of a day ended: further back than any time
            // zone is away.
            if random.u64(0..6) == 0 {
                let earlier = at.minus(minutes(random.u64(1440..20_000)));
                pay(&mut ledger, &key, amount, earlier, Status::Paid);
            }
            let until = at.plus(Duration::from_secs(random.u64(0..60)));
            let (mut standing, mut provider_id) = (Standing::InDoubt, None);
            let truth = match random.u64(0..10) {
                fate if fate < arrived_of_ten => {
                    let id = pay(&mut ledger, &key, amount, until, Status::Paid);
                    standing = Standing::Arrived;
                    provider_id = random.bool().then_some(id);
                    Truth::Paid
                }
                _ => match random.u64(0..8) {
                    0..4 => {
                        pay(&mut ledger, &key, amount, until, Status::Paid);
                        Truth::Paid
                    }
                    4 => {
                        pay(&mut ledger, &key, amount, until, Status::Failed);
                        Truth::NotPaid
                    }
                    5 => {
                        pay(&mut ledger, &key, amount, until, Status::Pending);
                        Truth::Pending
                    }
                    _ => Truth::NotPaid,
                },
            };
            // The provider answered it with an earlier one's payment.
            let told = |other: &&Ours| {
                other.standing == Standing::Arrived
                    && other.provider_id.is_some()
                    && other.amount == Some(amount.to_string().parse().unwrap())
            };
            if truth == Truth::NotPaid
                && number % 4 == 3
                && let Some(other) = ours.iter().rev().find(told)
            {
                provider_id.clone_from(&other.provider_id);
            }
            let our = Ours {
                subject: Subject::Message(MessageNumber(number)),
                record,
                tenant: tenant.clone(),
                wire_key: key,
                provider_id,
                amount: Some(amount.to_string().parse().unwrap()),
                currency: None,
                at,
                until,
                standing,
            };
            // Two lives of one key within what is kept, of which the second never reached the provider.
            if random.u64(0..12) == 0 && standing == Standing::InDoubt && truth == Truth::Paid {
                let before = at.minus(minutes(random.u64(1..4)));
                let subject = Subject::Message(MessageNumber(1000 + number));
                ours.push(Ours { subject, at: before, until: before, ..our.clone() });
                truths.push(Truth::NotPaid);
            }
            ours.push(our);
            truths.push(truth);
        }
        // Often while entries are still to be reported.
        let later_max = if random.bool() { 3000 } else { 60 };
        let now = at.plus(minutes(random.u64(0..later_max)));
        let back = if random.bool() { 2 * HOUR } else { 15 * 24 * HOUR };
        let window = Window { from: ours[0].at.minus(back), until: now };
        Self { kind: Kind::Messages, ours, truths, ledger, now, window }
    }

    /// The same with books of this kind.
    fn with(mut self, kind: Kind) -> Self {
        self.kind = kind;
        for (our, number) in self.ours.iter_mut().zip(0_u8..) {
            match kind {
                Kind::Messages => {}
                Kind::WithCurrency => our.currency = Some("EUR".to_owned()),
                Kind::WithoutAmounts => our.amount = None,
                Kind::Records => {
                    our.subject = Subject::Record(RecordId::from_bytes([number; 16]));
                    (our.amount, our.provider_id) = (None, None);
                }
            }
        }
        self
    }

    /// The oldest entry is no older than this.
    pub(crate) const AGE_MAX: Duration = Duration::from_hours(15 * 24);

    /// Returns true if another entry of ours was asked for under the same key.
    pub(crate) fn shares_key(&self, our: &Ours) -> bool {
        self.ours.iter().filter(|other| other.wire_key == our.wire_key).count() > 1
    }

    /// The account as these books compare it.
    fn compared(&self, mut theirs: Vec<Theirs>) -> Vec<Theirs> {
        if self.kind == Kind::WithCurrency {
            for their in &mut theirs {
                their.currency = Some("eur".to_owned());
            }
        }
        theirs
    }

    /// These books after they were copied to another store, without their age.
    fn copied(&self) -> Self {
        let mut copy = self.clone();
        let copied_at = self.ours[self.ours.len() / 2].at;
        copy.window.from = copied_at.minus(Rules::GRACE);
        for our in copy.ours.iter_mut().filter(|our| our.standing == Standing::InDoubt) {
            (our.at, our.until) = (our.at.max(copied_at), our.until.max(copied_at));
        }
        copy
    }

    /// What would be done wrongly.
    fn wrongs(
        &self,
        theirs: &[Theirs],
        sight: &Sight,
        rules: &Rules,
        plant: Option<Plant>,
    ) -> Wrongs {
        let mut wrongs = Wrongs::default();
        for verdict in compare(&self.ours, theirs, sight, rules).verdicts {
            let Some(index) = verdict.ours else { continue };
            let our = &self.ours[index];
            let action = plant.map_or(verdict.action, |plant| plant.action(&verdict, our));
            match (action, self.truths[index]) {
                (Action::NotArrived, Truth::NotPaid) => wrongs.right_absences += 1,
                (Action::Arrived, Truth::Paid) => wrongs.right_matches += 1,
                (Action::NotArrived, _) => wrongs.paid_twice.push(our.wire_key.clone()),
                (Action::Arrived, _) => wrongs.never_paid.push(our.wire_key.clone()),
                (Action::Nothing | Action::Find(_), _) => {}
            }
        }
        wrongs
    }
}

#[derive(Debug, Default)]
struct Wrongs {
    paid_twice: Vec<String>,
    never_paid: Vec<String>,
    right_absences: usize,
    right_matches: usize,
}

impl Wrongs {
    fn is_right(&self) -> bool {
        self.paid_twice.is_empty() && self.never_paid.is_empty()
    }
}

/// Reads every page, and whether the account is whole, as of `now`.
async fn pulled(source: &dyn Source, window: Window, now: Timestamp) -> (Vec<Theirs>, bool) {
    let (mut theirs, is_whole) = believed(source, window).await;
    let of_future = distrust_future(&mut theirs, now, &Rules::default());
    (theirs, is_whole && of_future.is_empty())
}

/// The same, with every date believed.
async fn believed(source: &dyn Source, window: Window) -> (Vec<Theirs>, bool) {
    let (mut theirs, mut cursor, mut passed_over, mut stated) = (Vec::new(), None, 0, 0);
    loop {
        let page = source.pull(window, cursor.as_deref()).await.unwrap();
        theirs.extend(page.entries);
        (passed_over, stated) = (passed_over + page.passed_over, page.stated.items.max(stated));
        if !page.flaws.is_empty() {
            return (theirs, false);
        }
        cursor = page.next;
        if cursor.is_none() {
            let ids: BTreeSet<_> = theirs.iter().map(|their| &their.provider_id).collect();
            let count = u64::try_from(ids.len() + passed_over).unwrap();
            return (theirs, stated <= count);
        }
    }
}

/// The moment to which an export reaches, as a person who knows the account states it.
fn reach(account: Account, now: Timestamp) -> Timestamp {
    match account {
        Account::OldExport => now.minus(12 * HOUR),
        Account::LateEntries => now.minus(Account::LAG),
        _ => now,
    }
}

fn statuses<P>(status: P) -> Made<P> {
    Made::by_status(status, &["paid"], &["failed"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "every account and every planted rule in turn")]
async fn no_account_causes_a_wrong_and_every_planted_rule_is_caught() {
    let served = Served::start().await;
    let next = || Paging::Next("/next".parse().unwrap());
    let by_status = || statuses("/status".parse().unwrap());
    let proper = http(&served, next(), by_status());
    let believing = http(&served, next(), Made::All);
    let guessing = http(&served, Paging::SinglePage, by_status());
    let mut caught: BTreeMap<Plant, BTreeSet<Account>> = BTreeMap::new();
    let mut right = (0, 0);
    for account in Account::ALL {
        for seed in 0..SEEDS {
            let world = World::new(seed);
            if !world.kind.can_judge(account) {
                continue;
            }
            served.set(account, &world.ledger, world.now);
            let window = world.window;
            let sight = |is_theirs_complete| Sight {
                window,
                stated_until: None,
                is_theirs_complete,
                is_ours_complete: true,
                now: world.now,
            };
            let rules = Rules::default();
            let export = csv(account, &world.ledger, world.now, statuses("status".to_owned()));
            let of = |(theirs, is_whole): (Vec<Theirs>, bool)| (world.compared(theirs), is_whole);
            let listed = of(pulled(&proper, window, world.now).await);
            let exported = of(pulled(&export, window, world.now).await);
            // A provider that reports no keys: ids alone name its payments.
            let mut keyless = listed.clone();
            keyless.0.iter_mut().for_each(|their| their.key = None);
            let stated_until = Some(reach(account, world.now));
            for ((theirs, is_whole), stated_until) in
                [(&listed, None), (&exported, None), (&exported, stated_until), (&keyless, None)]
            {
                let sight = Sight { stated_until, ..sight(*is_whole) };
                let wrongs = world.wrongs(theirs, &sight, &rules, None);
                assert!(wrongs.is_right(), "{account:?}, seed {seed}: {wrongs:?}");
                right = (right.0 + wrongs.right_absences, right.1 + wrongs.right_matches);
            }
            let all_made = of(pulled(&believing, window, world.now).await);
            let guessed = of(pulled(&guessing, window, world.now).await);
            let all_dated = of(believed(&proper, window).await);
            let mut by_id = listed.clone();
            let mut ids = BTreeSet::new();
            by_id.0.retain(|their| ids.insert(their.provider_id.clone()));
            for plant in Plant::ALL {
                let (theirs, is_whole) = match plant {
                    Plant::FailedIsMade => &all_made,
                    Plant::FutureIsBelieved => &all_dated,
                    Plant::PagingIsGuessed => &guessed,
                    Plant::SharedIdIsRepetition => &by_id,
                    _ => &listed,
                };
                let mut sight = sight(*is_whole);
                if matches!(plant, Plant::ReachesToNow | Plant::PagingIsGuessed) {
                    sight.stated_until = Some(world.now);
                }
                sight.is_theirs_complete |= plant == Plant::PagingIsGuessed;
                let grace = if plant == Plant::NoGrace { Duration::ZERO } else { rules.grace };
                let rules = Rules { grace, ..rules };
                let copied = (plant == Plant::CopyIsYoung).then(|| world.copied());
                let wrongs = match &copied {
                    Some(copy) => {
                        let window = copy.window;
                        let mut of_window = theirs.clone();
                        of_window.retain(|their| window.contains(their.at));
                        copy.wrongs(&of_window, &Sight { window, ..sight }, &rules, None)
                    }
                    None => world.wrongs(theirs, &sight, &rules, Some(plant)),
                };
                if !wrongs.is_right() {
                    caught.entry(plant).or_default().insert(account);
                }
            }
        }
    }
    assert!(right.0 > 50 && right.1 > 500, "what is proven is settled: {right:?}");
    let missed: Vec<_> = Plant::ALL.iter().filter(|plant| !caught.contains_key(plant)).collect();
    assert!(missed.is_empty(), "not caught: {missed:?}; caught: {caught:?}");
}
