//! The participants: two tenants with two keys each, and two different requests for every key.
//!
//! They are built once, because digests would otherwise cost more than the histories.

use std::sync::{Arc, LazyLock};

use firstwrite_core::{OnLostAnswer, Policy, Request};

use crate::sample;

/// Records in play: two tenants, two keys each.
pub(super) const RECORDS: usize = 4;

/// One client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Role {
    /// Which record, below [`RECORDS`]; the upper bit is the tenant.
    pub(super) record: usize,
    /// Which of the two requests for it.
    pub(super) variant: u8,
}

/// Way in which a key's handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// In one transaction with the record.
    Atomic,
    /// Reserved, with a remote effect that must not be repeated.
    Uncertain,
    /// Reserved, with an upstream that honours the key.
    Resend,
}

static REQUESTS: LazyLock<Vec<Arc<Request>>> = LazyLock::new(|| {
    let roles =
        (0..RECORDS).flat_map(|record| [Role { record, variant: 0 }, Role { record, variant: 1 }]);
    roles
        .map(|role| {
            let tenant = sample::tenant(if role.record < 2 { "acme" } else { "globex" });
            let key = sample::key(if role.record % 2 == 0 { "order-1" } else { "order-2" });
            Arc::new(sample::request(&tenant, &key, role.variant))
        })
        .collect()
});

static POLICIES: LazyLock<[Arc<Policy>; 2]> = LazyLock::new(|| {
    [OnLostAnswer::Uncertain, OnLostAnswer::Resend].map(|way| Arc::new(sample::policy(way)))
});

impl Role {
    pub(super) fn request(self) -> &'static Arc<Request> {
        &REQUESTS[self.record * 2 + usize::from(self.variant)]
    }

    /// Returns the prefix of every answer to this request: it names the record and the variant.
    pub(super) fn signature(self) -> String {
        format!("record {} variant {} ", self.record, self.variant)
    }
}

impl Way {
    pub(super) fn policy(self) -> &'static Arc<Policy> {
        match self {
            Self::Atomic | Self::Uncertain => &POLICIES[0],
            Self::Resend => &POLICIES[1],
        }
    }
}
