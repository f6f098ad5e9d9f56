//! Limits the number of attempts under way, and shares them out among tenants.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use firstwrite_core::Tenant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Says which tenants have one share together, besides one each.
pub(crate) type IsJoint = fn(&Tenant) -> bool;

/// One seat for each attempt that may be under way.
pub(super) struct Seats {
    /// Hands what becomes free to those who wait, in turn.
    free: Arc<Semaphore>,
    count_max: usize,
    tenant_count_max: usize,
    joint: Option<IsJoint>,
    claims: Mutex<Claims>,
}

/// Seats taken, and requests that wait for one.
#[derive(Default)]
struct Claims {
    /// Seats that each tenant has or waits for.
    by_tenant: HashMap<Tenant, usize>,
    /// Those of them whose tenants have one share together.
    joint_count: usize,
    waiting_count: usize,
}

/// Result of asking for a seat.
#[derive(Debug)]
pub(super) enum Wanted {
    Seat(Seat),
    Wait(Waiting),
    Full,
}

/// The right to have one attempt under way.
#[derive(Debug)]
pub(crate) struct Seat {
    _permit: OwnedSemaphorePermit,
    _claim: Claim,
}

/// A place in the line.
#[derive(Debug)]
#[must_use = "a seat comes to who waits"]
pub(crate) struct Waiting {
    claim: Claim,
    in_line: InLine,
}

/// Counts as one of a tenant's seats.
#[derive(Debug)]
struct Claim {
    seats: Arc<Seats>,
    tenant: Tenant,
    is_joint: bool,
}

/// Counts as one who waits.
#[derive(Debug)]
struct InLine(Arc<Seats>);

/// Most attempts end sooner, so that a seat becomes free; a client that gets its refusal later has given up.
const WAIT_MAX: Duration = Duration::from_secs(10);

impl Seats {
    /// `tenant_count_max`: a tenant's share. `joint`: those who have another one together.
    pub(super) fn new(count_max: usize, tenant_count_max: usize, joint: Option<IsJoint>) -> Self {
        let count_max = count_max.min(Semaphore::MAX_PERMITS);
        let free = Arc::new(Semaphore::new(count_max));
        Self { free, count_max, tenant_count_max, joint, claims: Mutex::default() }
    }

    pub(super) fn take(self: &Arc<Self>, tenant: &Tenant) -> Wanted {
        let mut claims = self.claims();
        let count = claims.by_tenant.get(tenant).copied().unwrap_or_default();
        let is_joint = self.joint.is_some_and(|is_joint| is_joint(tenant));
        let has_its_share = count >= self.tenant_count_max
            || is_joint && claims.joint_count >= self.tenant_count_max;
        if has_its_share && claims.waiting_count > 0 {
            return Wanted::Full;
        }
        let permit = Arc::clone(&self.free).try_acquire_owned().ok();
        // Those who wait take up memory too.
        if permit.is_none() && (has_its_share || claims.waiting_count >= self.count_max) {
            return Wanted::Full;
        }
        claims.by_tenant.insert(tenant.clone(), count + 1);
        claims.joint_count += usize::from(is_joint);
        let claim = Claim { seats: Arc::clone(self), tenant: tenant.clone(), is_joint };
        if let Some(permit) = permit {
            return Wanted::Seat(Seat { _permit: permit, _claim: claim });
        }
        claims.waiting_count += 1;
        Wanted::Wait(Waiting { claim, in_line: InLine(Arc::clone(self)) })
    }

    fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// A seat, if one becomes free in time.
    pub(crate) async fn seat(self) -> Option<Seat> {
        let Self { claim, in_line } = self;
        let free = Arc::clone(&in_line.0.free).acquire_owned();
        let permit = timeout(WAIT_MAX, free).await.ok()?.ok()?;
        Some(Seat { _permit: permit, _claim: claim })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = self.seats.claims();
        claims.joint_count -= usize::from(self.is_joint);
        if let Some(count) = claims.by_tenant.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                claims.by_tenant.remove(&self.tenant);
            }
        }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        self.0.claims().waiting_count -= 1;
    }
}

impl fmt::Debug for Seats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seats")
            .field("free", &self.free.available_permits())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    fn seat(seats: &Arc<Seats>, name: &str) -> Seat {
        match seats.take(&tenant(name)) {
            Wanted::Seat(seat) => seat,
            other @ (Wanted::Wait(_) | Wanted::Full) => panic!("no seat for {name}: {other:?}"),
        }
    }

    fn wait(seats: &Arc<Seats>, name: &str) -> Waiting {
        match seats.take(&tenant(name)) {
            Wanted::Wait(waiting) => waiting,
            other @ (Wanted::Seat(_) | Wanted::Full) => panic!("{name} does not wait: {other:?}"),
        }
    }

    fn is_refused(seats: &Arc<Seats>, name: &str) -> bool {
        matches!(seats.take(&tenant(name)), Wanted::Full)
    }

    #[tokio::test(start_paused = true)]
    async fn one_alone_has_all_and_others_come_first_for_what_becomes_free() {
        let seats = Arc::new(Seats::new(8, 2, None));
        let mut all: Vec<Seat> = (0..8).map(|_| seat(&seats, "acme")).collect();
        assert!(is_refused(&seats, "acme"));
        let first = tokio::spawn(wait(&seats, "globex").seat());
        let second = tokio::spawn(wait(&seats, "globex").seat());
        assert!(is_refused(&seats, "globex"), "what it waits for is its share already");
        tokio::task::yield_now().await;
        drop(all.pop());
        assert!(is_refused(&seats, "acme"), "somebody waits");
        let first = first.await.unwrap().unwrap();
        drop(all.pop());
        let second = second.await.unwrap().unwrap();
        drop(all.pop());
        let more = seat(&seats, "acme");
        // One that was told to wait comes first even before it waits.
        let third = wait(&seats, "initech");
        drop(all.pop());
        assert!(is_refused(&seats, "acme"));
        let third = third.seat().await.unwrap();
        drop((all, first, second, third, more));
        assert_eq!(seats.free.available_permits(), 8);
        assert!(seats.claims().by_tenant.is_empty() && seats.claims().waiting_count == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_have_one_share_together_come_behind_others() {
        let seats = Arc::new(Seats::new(4, 2, Some(|tenant| tenant.as_str().starts_with("auth-"))));
        let mut all: Vec<Seat> = (0..4).map(|one| seat(&seats, &format!("auth-{one}"))).collect();
        assert!(is_refused(&seats, "auth-5"), "they have their share together");
        let waiting = wait(&seats, "acme");
        drop(all.pop());
        assert!(is_refused(&seats, "auth-5"), "somebody waits");
        let acme = waiting.seat().await.unwrap();
        drop(all.drain(..2));
        all.push(seat(&seats, "auth-5"));
        drop((all, acme));
        assert_eq!(seats.claims().joint_count, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_in_vain_or_goes_away_leaves_nothing_behind() {
        let seats = Arc::new(Seats::new(1, 1, None));
        let only = seat(&seats, "acme");
        assert!(wait(&seats, "globex").seat().await.is_none());
        drop(wait(&seats, "globex"));
        let waiting = wait(&seats, "globex");
        assert!(is_refused(&seats, "initech"), "the line has an end");
        drop((waiting, only));
        assert!(seats.claims().by_tenant.is_empty() && seats.claims().waiting_count == 0);
        drop(seat(&seats, "initech"));
    }
}
