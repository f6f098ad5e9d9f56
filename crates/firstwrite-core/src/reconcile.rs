//! Reconciliation: compares our records with a provider's account of what it did.
//!
//! [`compare`] is the only place that decides. It matches the entries of both books and gives each a
//! class:
//!
//! 1. *matched*: both have it, and agree;
//! 2. *differs*: both have it, and do not agree;
//! 3. *duplicate*: the provider did more than once what was asked for once;
//! 4. *missing here*: the provider did something that was not asked for here;
//! 5. *missing there*: we were told that it had arrived, and the provider does not have it;
//! 6. *likely*: it is unknown whether it arrived, and something like it is there, without a name that
//!    proves it;
//! 7. *absent*: it is not there, and is not expected to be;
//! 8. *unproven*: it is unknown whether it arrived, it is not there, and the account proves no absence;
//! 9. *late*: it is too early to tell; the next run looks again.
//!
//! Each verdict carries an [`Action`]: a proof settles what was in doubt, a contradiction becomes a
//! [finding](crate::Findings) for a person, and nothing is settled on a guess. `evidence.rs` defines
//! when an absence is a proof: what is proven absent is done again, so it is the one verdict that can
//! pay twice.

mod amount;
mod answer;
mod compare;
mod entries;
mod evidence;
mod verdict;

pub use amount::Amount;
pub use answer::{AnswerBody, AnswerTemplate};
pub use compare::{Comparison, compare};
pub use entries::{Ours, Rules, Sight, Standing, Subject, Theirs, Window, distrust_future};
pub use evidence::Contradiction;
pub use verdict::{Action, Class, Difference, MatchedBy, Verdict, finding};
