//! The bed itself: the correct server keeps every promise, and each defect breaks exactly those
//! that it is meant to break.

mod answers;
mod client;
mod keys;
mod lives;
mod rivals;
mod sameness;
mod strangers;
mod wire;

use futures_util::StreamExt as _;
use futures_util::stream;

use super::{Bed, Defect};

/// Whether a server keeps a promise; if not, how it was seen.
type Seen = Result<(), String>;

/// Servers that are asked at the same time: they mostly wait, and two cores suffice for it.
const AT_ONCE: usize = 20;

/// Declares for promises which defects break them, and tests each on every server.
macro_rules! promises {
    ($($promise:ident: [$($defect:ident),*];)+) => {
        mod on_every_server {
            use super::super::super::Defect;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::super::check(super::$promise, &[$(Defect::$defect),*]).await;
            })+
        }

        /// What breaks a promise of this file.
        pub(super) const BREAKING: &[crate::bed::Defect] = &[$($(crate::bed::Defect::$defect,)*)+];
    };
}
use promises;

/// Asks the correct server and every defective one.
async fn check<P, F>(promise: P, breaking: &[Defect])
where
    P: Fn(Bed) -> F,
    F: Future<Output = Seen>,
{
    let defects = Defect::ALL.iter().copied().map(Some);
    // Whether what vanishes early is still there is a matter of luck, except where a promise is
    // about that.
    let by_luck = |defect| matches!(defect, Some(Defect::ExpiredEarly | Defect::OneLifetimeShort));
    let is_breaking = |defect: Option<Defect>| defect.is_some_and(|own| breaking.contains(&own));
    let servers = defects.chain([None]).filter(|own| is_breaking(*own) || !by_luck(*own));
    let asked = stream::iter(servers).map(async |defect| {
        let seen = promise(Bed::start(defect).await).await;
        let name = defect.map_or("correct", Defect::name);
        match (seen, is_breaking(defect)) {
            (Ok(()), true) => Some(format!("{name}: its defect was not seen")),
            (Err(seen), false) => Some(format!("{name}: {seen}")),
            (Ok(()), false) | (Err(_), true) => None,
        }
    });
    let wrong: Vec<_> =
        asked.buffer_unordered(AT_ONCE).filter_map(async |wrong| wrong).collect().await;
    assert!(wrong.is_empty(), "not as declared:\n{}", wrong.join("\n"));
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Seen {
    if holds { Ok(()) } else { Err(otherwise()) }
}

/// So many effects and no others.
fn effects(bed: &Bed, expected: usize) -> Seen {
    let found = bed.effects();
    ensure(found == expected, || format!("{found} effects instead of {expected}"))
}

#[test]
fn every_defect_breaks_a_promise() {
    let files = [
        answers::BREAKING,
        keys::BREAKING,
        lives::BREAKING,
        rivals::BREAKING,
        sameness::BREAKING,
        strangers::BREAKING,
        strangers::SLOWING,
        wire::BREAKING,
    ];
    let unseen = Defect::ALL.iter().filter(|own| !files.iter().any(|file| file.contains(own)));
    assert_eq!(unseen.collect::<Vec<_>>(), [] as [&Defect; 0]);
}

#[test]
fn names_are_those_of_the_variants_in_kebab_case() {
    let mut names: Vec<_> = Defect::ALL.iter().map(|own| own.name()).collect();
    for defect in Defect::ALL.iter().filter(|own| **own != Defect::Refused255) {
        let plain = defect.name().replace('-', "");
        assert_eq!(plain, format!("{defect:?}").to_lowercase());
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Defect::ALL.len(), "two have one name");
}
