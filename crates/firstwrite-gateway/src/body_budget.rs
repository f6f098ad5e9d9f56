//! Bounds what is held at the same time, by all clients together, of the heads and bodies of protected requests,
//! and of the answers that are gathered to be kept: each has a cap of its own, but there can be many of them, and
//! they can be slow. The two are counted apart: a flood of requests, which are refused and may come again,
//! keeps no answer from being kept.
//!
//! A head is held until its attempt begins or it is answered: a body may be long in coming, and who waits for a
//! status has none. What follows of bodies holds for heads; a request's own head takes no room from its body.
//!
//! Any body gets room while less than half of it is taken. The next quarter is for tenants that hold no more
//! than their share, and for small bodies; the last one for small bodies of such tenants. So neither one
//! tenant nor large bodies can take all of it. Where some callers are verified, all others together have one
//! share, and no more than the first half beyond it: they can be as many tenants as they like.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use firstwrite::Room;
use firstwrite_core::Tenant;
use http::request::Parts;
use http::{HeaderName, HeaderValue};

use crate::tenants::is_unverified;

/// Memory budget of all bodies together.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    bytes: AtomicUsize,
    bytes_max: usize,
    tenant_bytes_max: usize,
    /// Bytes of all tenants together that the gateway did not verify, where it verifies others.
    unverified: Option<TenantBytes>,
    /// Only tenants that hold something.
    tenants: Mutex<HashMap<Tenant, Arc<TenantBytes>>>,
}

/// Bytes that one tenant holds.
#[derive(Debug, Default)]
struct TenantBytes(AtomicUsize);

/// Bytes that the head and body of one request hold, or one answer, until it is passed on or refused.
#[derive(Debug)]
pub(crate) struct BodyPermit {
    of: Arc<BodyBudget>,
    /// Known before the first byte is taken.
    tenant: OnceLock<(Tenant, Arc<TenantBytes>)>,
    head: OnceLock<usize>,
    bytes: AtomicUsize,
}

/// Nearly every body of an API that takes JSON.
const SMALL_BYTES: usize = 16 * 1024;
/// Size that a request with the smallest body counts as.
const BODY_BYTES_MIN: usize = 1024;
/// Memory that a header takes up beside its name and value.
const HEADER_BYTES: usize = 128;

/// A part of a request, for as long as it is held: a clone is in the request's extensions.
pub(crate) type SharedPermit = Arc<BodyPermit>;

impl BodyBudget {
    /// `tenant_bytes_max`: a tenant's share. `is_joint`: whether tenants that the gateway did not verify have
    /// one share together, besides one each.
    pub(crate) fn new(bytes_max: usize, tenant_bytes_max: usize, is_joint: bool) -> Arc<Self> {
        let (bytes, tenants) = (AtomicUsize::new(0), Mutex::default());
        let unverified = is_joint.then(TenantBytes::default);
        Arc::new(Self { bytes, bytes_max, tenant_bytes_max, unverified, tenants })
    }

    pub(crate) fn share(self: &Arc<Self>) -> SharedPermit {
        let (tenant, head, bytes) = (OnceLock::new(), OnceLock::new(), AtomicUsize::new(0));
        Arc::new(BodyPermit { of: Arc::clone(self), tenant, head, bytes })
    }

    /// Room for an answer to a request of `tenant`.
    pub(crate) fn room(self: &Arc<Self>, tenant: &Tenant) -> Room {
        let (share, tenant) = (self.share(), tenant.owner());
        Room::new(move |count| {
            share.belongs_to(&tenant);
            share.grow(count)
        })
    }

    fn tenants(&self) -> MutexGuard<'_, HashMap<Tenant, Arc<TenantBytes>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BodyPermit {
    /// Says whose it is.
    pub(crate) fn belongs_to(&self, tenant: &Tenant) {
        self.tenant.get_or_init(|| {
            let held = Arc::clone(self.of.tenants().entry(tenant.clone()).or_default());
            (tenant.clone(), held)
        });
    }

    /// Takes room for the request's head, once. Returns true if there was enough.
    pub(crate) fn holds_head(&self, head: &Parts) -> bool {
        let count = head_bytes(head);
        if self.head.set(count).is_err() {
            return true;
        }
        self.take(count, 0, count <= SMALL_BYTES)
    }

    /// Takes room for `count` more bytes of the body. Returns true if there was enough.
    pub(crate) fn grow(&self, count: usize) -> bool {
        let before = self.bytes.fetch_add(count, Ordering::Relaxed);
        let after = before.saturating_add(count);
        match counted(after) - counted(before) {
            0 => true,
            more => self.take(more, self.head_bytes(), after <= SMALL_BYTES),
        }
    }

    /// `own` bytes that it has taken before do not count against it.
    fn take(&self, more: usize, own: usize, is_small: bool) -> bool {
        let taken = |held: &AtomicUsize| {
            held.fetch_add(more, Ordering::Relaxed).saturating_add(more).saturating_sub(own)
        };
        let of_tenant = self.tenant.get().map_or(0, |(_, held)| taken(&held.0));
        let of_joint = self.joint().map_or(0, |held| taken(&held.0));
        let of_all = taken(&self.of.bytes);
        let share = self.of.tenant_bytes_max;
        let quarters = if of_joint > share {
            2
        } else {
            2 + usize::from(of_tenant <= share) + usize::from(is_small)
        };
        of_all <= self.of.bytes_max / 4 * quarters
    }

    fn head_bytes(&self) -> usize {
        self.head.get().copied().unwrap_or_default()
    }

    /// Bytes of all whose share its tenant is in, if it is one of those.
    fn joint(&self) -> Option<&TenantBytes> {
        let unverified = self.of.unverified.as_ref()?;
        self.tenant.get().filter(|(tenant, _)| is_unverified(tenant)).map(|_| unverified)
    }
}

impl Drop for BodyPermit {
    fn drop(&mut self) {
        let bytes = counted(*self.bytes.get_mut()).saturating_add(self.head_bytes());
        self.of.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(held) = self.joint() {
            held.0.fetch_sub(bytes, Ordering::Relaxed);
        }
        let Some((tenant, held)) = self.tenant.take() else { return };
        held.0.fetch_sub(bytes, Ordering::Relaxed);
        let mut tenants = self.of.tenants();
        drop(held);
        // New shares clone the entry under the same lock.
        if tenants.get(&tenant).is_some_and(|held| Arc::strong_count(held) == 1) {
            tenants.remove(&tenant);
        }
    }
}

/// Returns the memory of a body of which `bytes` have arrived: its buffer grows by doubling.
fn counted(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        bytes => bytes.checked_next_power_of_two().unwrap_or(bytes).max(BODY_BYTES_MIN),
    }
}

/// Returns the memory of a request's head.
fn head_bytes(head: &Parts) -> usize {
    let target = head.uri.path().len() + head.uri.query().map_or(0, str::len);
    let header = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + HEADER_BYTES
    };
    target + head.headers.iter().map(header).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    fn share(held: &Arc<BodyBudget>, tenant: &str) -> SharedPermit {
        let share = held.share();
        share.belongs_to(&Tenant::new(tenant).unwrap());
        share
    }

    #[test]
    fn what_is_held_is_counted_from_the_first_byte_as_the_buffer_that_it_takes() {
        let held = BodyBudget::new(64 * KIB, 64 * KIB, false);
        let one = share(&held, "acme");
        for (count, expected) in [(1, KIB), (1022, KIB), (1, KIB), (1, 2 * KIB), (1024, 4 * KIB)] {
            assert!(one.grow(count));
            assert_eq!(held.bytes.load(Ordering::Relaxed), expected, "{count}");
        }
        drop(one);
        assert_eq!(held.bytes.load(Ordering::Relaxed), 0);
        assert!(held.tenants().is_empty());
    }

    #[test]
    fn neither_one_tenant_nor_large_bodies_take_all_of_it() {
        let held = BodyBudget::new(1024 * KIB, 256 * KIB, false);
        let large = |tenant| {
            let share = share(&held, tenant);
            share.grow(64 * KIB).then_some(share)
        };
        let small = |tenant| {
            let share = share(&held, tenant);
            share.grow(16 * KIB).then_some(share)
        };
        let first: Vec<SharedPermit> = std::iter::from_fn(|| large("acme")).collect();
        assert_eq!(first.len(), 8, "one alone has half of it");
        let second: Vec<SharedPermit> = std::iter::from_fn(|| large("globex")).collect();
        assert_eq!(second.len(), 4, "others have a quarter more");
        assert!(large("initech").is_none() && small("acme").is_none());
        let third: Vec<SharedPermit> = std::iter::from_fn(|| small("initech")).collect();
        assert_eq!(third.len(), 16, "and small bodies the last one");
        drop(first);
        assert!(large("umbrella").is_some(), "what is given back is free");
        drop((second, third));
        assert_eq!(held.bytes.load(Ordering::Relaxed), 0);
        assert!(held.tenants().is_empty());
    }

    fn head(bytes: usize) -> Parts {
        let value = "x".repeat(bytes - HEADER_BYTES - "x-a".len() - "/".len());
        http::Request::post("/").header("x-a", value).body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_head_is_held_once_and_takes_no_room_from_its_own_body() {
        let held = BodyBudget::new(64 * KIB, 16 * KIB, false);
        let one = share(&held, "acme");
        for _ in 0..2 {
            assert!(one.holds_head(&head(20 * KIB)));
            assert_eq!(held.bytes.load(Ordering::Relaxed), 20 * KIB);
        }
        assert!(one.grow(32 * KIB), "half of it");
        let other = share(&held, "acme");
        assert!(!other.holds_head(&head(KIB)), "it is a tenant above its share");
        assert!(share(&held, "globex").holds_head(&head(KIB)));
        drop((one, other));
        assert_eq!(held.bytes.load(Ordering::Relaxed), 0);
        assert!(held.tenants().is_empty());
    }

    #[test]
    fn those_whom_nobody_verified_have_one_share_together() {
        let held = BodyBudget::new(1024 * KIB, 256 * KIB, true);
        let small = |tenant: &str| {
            let share = share(&held, tenant);
            share.grow(16 * KIB).then_some(share)
        };
        let made_up = |number: usize| small(&format!("auth-{number:024x}"));
        let many: Vec<SharedPermit> = (0..100).map_while(made_up).collect();
        assert_eq!(many.len(), 32, "half of it");
        assert!(small("anonymous").is_none());
        let large = share(&held, "acme");
        assert!(large.grow(128 * KIB) && small("acme").is_some());
        drop((many, large));
        assert_eq!(held.unverified.as_ref().unwrap().0.load(Ordering::Relaxed), 0);
    }
}
