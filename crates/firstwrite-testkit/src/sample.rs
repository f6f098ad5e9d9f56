//! Requests, drafts and outcomes to test with; small, and every one of them valid.

use std::time::Duration;

use bytes::Bytes;
use firstwrite_core::{
    AuditEntry, BodyForm, Draft, DraftState, Fence, Fingerprint, KeptHeaders, Key, OnLostAnswer,
    Outcome, PartDigests, Policy, RecordId, Request, Tenant,
};
use http::StatusCode;

/// A tenant by name.
pub fn tenant(name: &str) -> Tenant {
    Tenant::new(name).expect("sample tenants are printable and short")
}

/// A key by its plain value.
pub fn key(value: &str) -> Key {
    Key::new(value).expect("sample keys are visible and short")
}

/// A fingerprint; two bodies differ if and only if their numbers do.
pub fn fingerprint(body: u8) -> Fingerprint {
    let parts = PartDigests::from_bytes(&[body; 32]).expect("16 part digests of 2 bytes");
    Fingerprint::from_stored(Fingerprint::VERSION, BodyForm::Canonical, [body; 32], parts)
}

/// `POST /payments` with a numbered body.
pub fn request(tenant: &Tenant, key: &Key, body: u8) -> Request {
    Request {
        id: RecordId::of(tenant, key),
        tenant: tenant.clone(),
        key: key.clone(),
        operation: "POST /payments".into(),
        fingerprint: fingerprint(body),
    }
}

/// The default policy with this answer to a lost answer.
pub fn policy(on_lost_answer: OnLostAnswer) -> Policy {
    Policy::default().on_lost_answer(on_lost_answer)
}

/// An answer of text, without headers.
pub fn outcome(status: u16, text: &str) -> Outcome {
    let status = StatusCode::from_u16(status).expect("sample statuses are valid");
    Outcome::new(status, KeptHeaders::default(), Bytes::copy_from_slice(text.as_bytes()))
}

/// A draft that reserves the request's key.
pub fn reserved(request: &Request, policy: &Policy, fence: Fence) -> Draft {
    draft(request, policy, fence, DraftState::reserved(policy.lease))
}

/// A draft that is written already completed.
pub fn completed(request: &Request, policy: &Policy, fence: Fence, outcome: Outcome) -> Draft {
    let state = DraftState::Completed { outcome };
    draft(request, policy, fence, state)
}

/// Returns an operator's audit entry.
pub fn audit(reason: &str) -> AuditEntry {
    AuditEntry {
        actor: "operator".to_owned(),
        action: "settle".to_owned(),
        reason: reason.to_owned(),
    }
}

/// The shortest step of a store's clock.
pub const TICK: Duration = Duration::from_millis(1);

/// The last instant before `end` by a store's clock.
pub fn just_before(end: Duration) -> Duration {
    end.saturating_sub(TICK)
}

fn draft(request: &Request, policy: &Policy, fence: Fence, state: DraftState) -> Draft {
    Draft {
        id: request.id,
        tenant: request.tenant.clone(),
        key: request.key.clone(),
        operation: request.operation.clone(),
        fingerprint: request.fingerprint.clone(),
        fence,
        on_lost_answer: policy.on_lost_answer,
        retention: policy.record_retention(),
        state,
    }
}
