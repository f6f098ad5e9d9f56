//! Discrepancies, planted for reconciliation to find.

use serde::{Deserialize, Serialize};

use crate::book::Book;
use crate::clock::Moment;
use crate::error::{ErrorKind, ProviderError};
use crate::ledger::Entry;
use crate::payment::{Payment, Wanted, parse_key};

/// A discrepancy. In JSON: `{"plant": "remove", "id": "pay_00000001"}`.
///
/// They are written into the ledger like payments, and outlast a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "plant", rename_all = "snake_case", deny_unknown_fields)]
pub enum Plant {
    /// The payment is no longer reported, and its key is free, as if it had never happened.
    Remove {
        /// Which payment.
        id: String,
    },
    /// The same payment once more, under the same key.
    Duplicate {
        /// Which payment.
        id: String,
    },
    /// The payment is reported with another amount.
    ChangeAmount {
        /// Which payment.
        id: String,
        /// Amount reported from now on.
        amount: u64,
    },
    /// A payment without a call for it.
    AddForeign(Foreign),
}

/// A payment without a call for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Foreign {
    /// In minor units.
    pub amount: u64,
    /// Three capital letters.
    pub currency: String,
    /// Its reference, if any.
    #[serde(default)]
    pub reference: Option<String>,
    /// The key it claims to have been made under, if any.
    #[serde(default)]
    pub idempotency_key: Option<String>,
    /// Time at which it claims to have been made; now, if left out.
    #[serde(default)]
    pub created_at: Option<Moment>,
}

impl Plant {
    /// Returns the ledger entry, and the payment as it is reported from then on; for a removed payment, as it
    /// was reported last.
    pub(crate) fn entry(self, book: &Book, now: Moment) -> Result<(Entry, Payment), ProviderError> {
        let find = |id: &str| book.payment(id).ok_or_else(|| refused("there is no such payment"));
        match self {
            Self::Remove { id } => {
                let payment = find(&id)?;
                Ok((Entry::Removed { id }, payment))
            }
            Self::Duplicate { id } => {
                let twin = Payment { id: book.id_next(), created_at: now, ..find(&id)? };
                Ok((Entry::Duplicate(twin.clone()), twin))
            }
            Self::ChangeAmount { id, amount } => {
                let payment = Payment { amount, ..find(&id)? };
                check(&payment)?;
                Ok((Entry::Amount { id, amount }, payment))
            }
            Self::AddForeign(foreign) => {
                let payment = Payment {
                    id: book.id_next(),
                    amount: foreign.amount,
                    currency: foreign.currency,
                    reference: foreign.reference,
                    idempotency_key: foreign.idempotency_key,
                    created_at: foreign.created_at.unwrap_or(now),
                };
                check(&payment)?;
                Ok((Entry::Foreign(payment.clone()), payment))
            }
        }
    }
}

fn check(payment: &Payment) -> Result<(), ProviderError> {
    let Payment { amount, currency, reference, .. } = payment.clone();
    Wanted { amount, currency, reference }.check().map_err(refused)?;
    match &payment.idempotency_key {
        Some(key) if !parse_key(key.as_bytes()).is_ok_and(|read| read == *key) => {
            Err(refused("idempotency_key: no key that a caller could send"))
        }
        Some(_) | None => Ok(()),
    }
}

fn refused(detail: impl Into<String>) -> ProviderError {
    ProviderError::new(ErrorKind::Plant, detail)
}
