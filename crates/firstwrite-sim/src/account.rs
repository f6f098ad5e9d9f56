//! The provider's account as a reconciliation is given it: often whole, else wrong in one of the testkit's ways.

use std::sync::OnceLock;

use bytes::Bytes;
use firstwrite::reconcile::{
    Export, HttpItems, HttpList, HttpListSource, Made, Paging, Source, SourceError, SourcePage,
    TimeForm, Window,
};
use firstwrite_core::{BoxFuture, Pointer, Timestamp};
use firstwrite_testkit::accounts::{Account, Asked, Entry};
use http::HeaderMap;

use crate::defects::Defect;
use crate::terms::Path;
use crate::world::{EPOCH_MILLIS, Process, World};

/// An account of the world's payments, read as a list by HTTP is.
#[derive(Debug)]
pub(crate) struct SimAccount {
    process: Process,
    account: Account,
    export: Option<Export>,
}

/// The testkit's accounts are wrong by hours, and a history takes minutes: their clock runs so much faster.
pub(crate) const PACE: i64 = 360;

impl SimAccount {
    /// The account that is looked at this time.
    pub(crate) fn draw(process: &Process) -> Self {
        let world = process.world();
        let now = world.provider_now();
        let mut state = world.state();
        let rng = &mut state.account_rng;
        let account = if rng.u8(..3) == 0 {
            Account::Whole
        } else {
            Account::ALL[rng.usize(..Account::ALL.len())]
        };
        // Records know no amounts: an account that lies about whose payment it is cannot be seen through.
        let is_misfiled = matches!(account, Account::MisfiledKeys);
        let account = if is_misfiled && world.terms().path != Path::Atomic {
            Account::CutKeys
        } else {
            account
        };
        let is_stated = rng.bool();
        let export = (rng.u8(..3) == 0).then(|| {
            let until = made_until(account, now).filter(|_| is_stated);
            Export { until }
        });
        drop(state);
        let believes = [Defect::AccountReachesToNow, Defect::FirstPageIsAll];
        let export = if believes.iter().any(|defect| world.has(*defect)) {
            Some(Export { until: Some(now) })
        } else {
            export
        };
        Self { process: process.clone(), account, export }
    }

    pub(crate) fn account(&self) -> Account {
        self.account
    }

    fn page(&self, window: Window, cursor: Option<&str>) -> Bytes {
        let world = self.process.world();
        let now = paced(world.provider_now());
        let state = world.state();
        let entries = state.ledger.payments.entries();
        let ledger: Vec<Entry> =
            entries.map(|entry| Entry { at: paced(entry.at), ..entry.clone() }).collect();
        let (from, until) = (paced(window.from), paced(window.until));
        let asked = Asked { from, until, cursor, now };
        Bytes::from(self.account.page(&ledger, &asked))
    }
}

impl Source for SimAccount {
    fn pull<'a>(
        &'a self,
        window: Window,
        cursor: Option<&'a str>,
    ) -> BoxFuture<'a, Result<SourcePage, SourceError>> {
        Box::pin(async move {
            let world = self.process.world();
            world.hop().await;
            let page = self.page(window, cursor);
            world.passes(0, 50).await;
            self.process.gate().await;
            let is_away = world.state().account_rng.u8(..20) == 0;
            if is_away {
                return Err(SourceError::transient("the provider is away"));
            }
            let mut page = list(world).read(&HeaderMap::new(), &page)?;
            page.entries.iter_mut().for_each(|entry| entry.at = unpaced(entry.at));
            if world.has(Defect::FirstPageIsAll) {
                page = SourcePage { entries: page.entries, ..SourcePage::default() };
            }
            Ok(page)
        })
    }

    fn as_export(&self) -> Option<Export> {
        self.export
    }
}

/// Returns the time at which the account was made, if a person can state it truthfully.
fn made_until(account: Account, now: Timestamp) -> Option<Timestamp> {
    match account {
        Account::FirstPageOnly
        | Account::FailingPage
        | Account::CutWithHasMore
        | Account::CutWithTotal
        | Account::WesternTimes
        | Account::EasternTimes
        | Account::WesternWindow
        | Account::EasternWindow => None,
        Account::OldExport => Some(now.minus(std::time::Duration::from_mins(2))),
        Account::Whole
        | Account::OtherMerchant
        | Account::Empty
        | Account::OtherUnits
        | Account::ShiftingPages
        | Account::DuplicatedPages
        | Account::LateEntries
        | Account::ForeignKeys
        | Account::CutKeys
        | Account::SmallKeys
        | Account::NetAmounts
        | Account::MisfiledKeys
        | Account::SharedIds
        | Account::FutureTimes => Some(now),
    }
}

fn paced(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(EPOCH_MILLIS + (at.as_millis() - EPOCH_MILLIS) * PACE)
}

fn unpaced(at: Timestamp) -> Timestamp {
    Timestamp::from_millis(EPOCH_MILLIS + (at.as_millis() - EPOCH_MILLIS).div_euclid(PACE))
}

/// The list that pages are read as, or what a defect makes of it.
fn list(world: &World) -> &'static HttpListSource {
    static LISTS: OnceLock<[HttpListSource; 4]> = OnceLock::new();
    let [proper, all_made, pending_made, single_page] = LISTS.get_or_init(|| {
        let next = || Paging::Next(pointer("/next"));
        let by_status = |made: &[&str]| Made::by_status(pointer("/status"), made, &["failed"]);
        [
            built(next(), by_status(&["paid"])),
            built(next(), Made::All),
            built(next(), by_status(&["paid", "pending"])),
            built(Paging::SinglePage, by_status(&["paid"])),
        ]
    });
    if world.has(Defect::FailedIsMade) {
        all_made
    } else if world.has(Defect::PendingIsMade) {
        pending_made
    } else if world.has(Defect::FirstPageIsAll) {
        single_page
    } else {
        proper
    }
}

fn built(paging: Paging, made: Made<Pointer>) -> HttpListSource {
    let cursor = if paging == Paging::SinglePage { "" } else { "&after={cursor}" };
    let url = format!("http://provider.example/payments?from={{from}}&until={{until}}{cursor}");
    let items = HttpItems {
        key: Some(pointer("/key")),
        amount: Some(pointer("/amount")),
        ..HttpItems::new(pointer("/data"), pointer("/id"), pointer("/at"), made)
    };
    let list = HttpList::new(&url, items, paging).times(TimeForm::UnixMillis);
    list.build().expect("the settings of the list hold together")
}

pub(crate) fn pointer(text: &str) -> Pointer {
    text.parse().expect("the text is a JSON pointer")
}
