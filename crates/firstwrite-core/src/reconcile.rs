//! Reconciliation: what we believe to have done, compared with what a provider says it did.
//!
//! [`compare`] is the only place that decides. It matches entries of both books and says, of each,
//!
//! 1. *matched*: both have it, and agree;
//! 2. *differs*: both have it, and do not agree;
//! 3. *duplicate*: the provider did more than once what was asked for once;
//! 4. *missing here*: the provider did something that nobody here asked for;
//! 5. *missing there*: we were told that it had arrived, and the provider does not have it;
//! 6. *likely*: nobody knows whether it arrived, and something like it is there, without a name that
//!    proves it;
//! 7. *absent*: it is not there, and nobody here says that it should be;
//! 8. *unproven*: nobody knows whether it arrived, it is not there, and the account proves no absence;
//! 9. *late*: it is too early to tell; the next run looks again.
//!
//! What follows is an [`Action`]: a proof settles what was in doubt, a contradiction becomes a
//! [finding](crate::Findings) for a person, and nothing is settled on a guess. `evidence.rs` says when an
//! absence is a proof: an absence is done again, so it is the one verdict that can pay twice.

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
