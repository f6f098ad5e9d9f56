//! Server side of a process in a history: the production layer or gateway, set up as an application would.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use firstwrite::{Atomic, Attempt, Idempotency, IdempotencyLayer, ProbeForm};
use firstwrite_core::outbox::Answers;
use firstwrite_core::{
    BoxError, BoxFuture, Effect, Interim, KeptHeaders, Mode, Outcome, ProblemBase, Store,
};
use firstwrite_gateway::tenants::{Settings, Tenants};
use firstwrite_gateway::{
    Calling, Forwarding, LineBody, LineFailure, OperationExtras, Operations, Peer, Probe,
    ProbeSettings, Rules, SimulatedGateway, Target,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tower::util::{BoxCloneSyncService, service_fn};
use tower::{Layer as _, Service as _};

use crate::cast::{AUTHORIZATION, REQUEST_NUMBER, tenant};
use crate::defects::Defect;
use crate::events::Event;
use crate::payments::Payments;
use crate::store::SimStore;
use crate::terms::Path;
use crate::upstream::{Call, SimLine, connect, make, variant};
use crate::world::Process;

/// The destination of messages.
pub(crate) const DESTINATION: &str = "provider";
/// The step that they carry out.
pub(crate) const MESSAGE_STEP: &str = "pay";
/// Bodies of the final answers if the message arrived, and if it never will.
pub(crate) const PAID: &[u8] = b"paid";
pub(crate) const NOT_PAID: &[u8] = b"not paid";

/// A process that serves.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) process: Process,
    serves: Serves,
}

type Handler = BoxCloneSyncService<Request<Full<Bytes>>, Response<LineBody>, BoxError>;

type Handling = BoxFuture<'static, Result<Response<LineBody>, BoxError>>;

#[derive(Debug)]
enum Serves {
    Layer(Box<Idempotency<Handler>>),
    Gateway(Box<SimulatedGateway>, Peer),
}

impl Front {
    /// Starts a process that serves.
    pub(crate) fn start(store: &SimStore) -> Self {
        let slot = store.process.slot;
        let terms = store.process.world().terms().clone();
        let serves = match terms.path {
            Path::Library => {
                let layer = IdempotencyLayer::new(Arc::new(store.clone()))
                    .policy(terms.policy(slot))
                    .expect("the terms make sense")
                    .single_tenant(tenant(terms.path));
                Serves::Layer(Box::new(layer.layer(calling(store.clone()))))
            }
            Path::Atomic => {
                let mut policy = terms.policy(slot);
                policy.mode = Mode::Atomic;
                let layer = IdempotencyLayer::atomic(store.clone())
                    .policy(policy)
                    .expect("the terms make sense")
                    .single_tenant(tenant(terms.path));
                Serves::Layer(Box::new(layer.layer(committing(store.clone()))))
            }
            Path::Gateway | Path::Sql => {
                let gateway = gateway(store);
                let peer = Peer::new(IpAddr::V4(Ipv4Addr::LOCALHOST), false, None);
                Serves::Gateway(Box::new(gateway), peer)
            }
        };
        Self { process: store.process.clone(), serves }
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, request: Request<Bytes>) -> Option<Response<Bytes>> {
        let response = match &self.serves {
            Serves::Layer(service) => {
                let mut service = service.clone();
                service.call(request.map(Full::from)).await.ok()?
            }
            Serves::Gateway(gateway, peer) => gateway.answer(request, peer).await,
        };
        let (parts, body) = response.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some(Response::from_parts(parts, body))
    }

    /// Asks about uncertain records, where the gateway can.
    pub(crate) async fn resolve(&self) {
        if let Serves::Gateway(gateway, _) = &self.serves
            && let Ok(settled) = gateway.resolve().await
            && settled > 0
        {
            self.process
                .world()
                .note(Event::ProbeSettled, || format!("{settled} by {}", self.process.number));
        }
    }
}

/// A handler that calls an upstream and passes its answer on.
fn calling(store: SimStore) -> Handler {
    BoxCloneSyncService::new(service_fn(move |request: Request<Full<Bytes>>| {
        let store = store.clone();
        let handling: Handling = Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let attempt = parts.extensions.get::<Attempt>().ok_or("no attempt")?;
            let call = Call {
                key: store
                    .process
                    .world()
                    .state()
                    .ledger
                    .key_of(attempt.record_id())
                    .ok_or("no key")?,
                variant: variant(&body),
                request: number(&parts.headers),
                fence: attempt.fence().map(firstwrite_core::Fence::as_u64),
                pending: None,
            };
            let called = match connect(&store).await {
                Ok(()) => make(&store, call).await,
                Err(failure) => Err(failure),
            };
            match called {
                Ok(response) => Ok(response),
                Err(LineFailure::NotSent) => {
                    let mut response = Response::new(LineBody::whole(Bytes::new()));
                    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                    response.extensions_mut().insert(Effect::None);
                    Ok(response)
                }
                Err(LineFailure::Lost) => Err("the answer was lost".into()),
            }
        });
        handling
    }))
}

/// A handler in atomic mode: a row, and a message whose delivery decides the final answer.
fn committing(store: SimStore) -> Handler {
    BoxCloneSyncService::new(service_fn(move |request: Request<Full<Bytes>>| {
        let store = store.clone();
        let handling: Handling = Box::pin(async move {
            let world = store.process.world().clone();
            let (parts, _body) = request.into_parts();
            let atomic = Atomic::<SimStore>::from_extensions(&parts.extensions)?;
            world.passes(0, 1500).await;
            store.process.gate().await;
            let name = format!("row {}", number(&parts.headers));
            let is_interim = world.chance(60);
            let refuses = world.chance(10);
            let written = world.clone();
            let key = parts.headers.get("idempotency-key").and_then(|key| key.to_str().ok());
            let payload = payload(key.unwrap_or_default());
            let answered = atomic.run(move |tx, attempt| {
                tx.put(&name, "done");
                let mut message = attempt.message(MESSAGE_STEP, DESTINATION, payload)?;
                let mut response = Response::new(Bytes::from(format!("{{\"row\":\"{name}\"}}")));
                if refuses {
                    *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
                    return Ok(response);
                }
                if is_interim {
                    message = message.answering(answers());
                    *response.status_mut() = StatusCode::ACCEPTED;
                    response.extensions_mut().insert(Interim { wait_for: Duration::ZERO });
                }
                tx.enqueue(message);
                written.note(Event::MessageWritten, || name.clone());
                Ok::<_, firstwrite_core::MessageError>(response)
            });
            let response = answered.await?;
            let (parts, body) = response.into_parts();
            let body = body.collect().await?.to_bytes();
            Ok(Response::from_parts(parts, LineBody::whole(body)))
        });
        handling
    }))
}

/// Returns the payload of the message under this key.
pub(crate) fn payload(key: &str) -> Bytes {
    Bytes::from(format!("{{\"amount\":{}}}", Payments::amount(key)))
}

fn answers() -> Answers {
    let answer = |status, body: &'static [u8]| {
        Outcome::new(status, KeptHeaders::default(), Bytes::from_static(body))
    };
    Answers {
        delivered: answer(StatusCode::CREATED, PAID),
        refused: answer(StatusCode::PAYMENT_REQUIRED, NOT_PAID),
    }
}

fn number(headers: &http::HeaderMap) -> u64 {
    let text = headers.get(REQUEST_NUMBER).and_then(|value| value.to_str().ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn gateway(store: &SimStore) -> SimulatedGateway {
    let slot = store.process.slot;
    let terms = store.process.world().terms();
    let calling = Calling { answer_within: terms.answer_within, ..Calling::default() };
    let is_hasty = store.process.world().has(Defect::ProbeHasNoPatience);
    let hasty = terms.answer_within + Duration::from_millis(1);
    let probe = terms.probe_graces[slot].map(|grace| {
        let grace = if is_hasty { hasty } else { grace };
        let settings = ProbeSettings {
            url: "/made/{key}".to_owned(),
            headers: Vec::new(),
            status: None,
            form: ProbeForm {
                absent_statuses: vec![StatusCode::NOT_FOUND],
                ..ProbeForm::default()
            },
            grace,
        };
        Arc::new(Probe::new(settings, &calling).expect("the probe's address has a key in it"))
    });
    let care = OperationExtras { probe, ..OperationExtras::default() };
    let operations =
        Operations::only_named().protected(Method::POST, "/pay", terms.policy(slot), care);
    let rules = Rules {
        upstreams: vec![target()],
        calling,
        forwarding: Forwarding { tells_record: true, ..Forwarding::default() },
        operations: Arc::new(operations),
        tenants: tenants(),
        observer: None,
        counting: None,
        metrics: None,
        tracer: None,
        service_name: Some("sim".to_owned()),
        secrets: firstwrite_core::Secrets::default(),
        cors: None,
        problem_base: ProblemBase::default(),
        clock: || SystemTime::UNIX_EPOCH,
    };
    let shared: Arc<dyn Store> = Arc::new(store.clone());
    SimulatedGateway::new(&shared, rules, Arc::new(SimLine(store.clone())))
        .expect("the rules of a simulated gateway hold together")
}

fn target() -> Target {
    Target::new("http://127.0.0.1:1").expect("it is a scheme, a host and a port")
}

fn tenants() -> Arc<Tenants> {
    static TENANTS: OnceLock<Arc<Tenants>> = OnceLock::new();
    let made = TENANTS.get_or_init(|| {
        let tenants = Tenants::new(&Settings::authorization(), || SystemTime::UNIX_EPOCH);
        Arc::new(tenants.expect("the default settings hold together"))
    });
    Arc::clone(made)
}

/// Whose requests the gateway takes ours for.
pub(crate) fn gateway_tenant() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    let name = NAME.get_or_init(|| {
        let request = Request::builder().header("authorization", AUTHORIZATION).body(());
        let (parts, ()) = request.expect("a plain head").into_parts();
        let identity = tenants().identify(&parts).expect("the digest of a credential is a tenant");
        identity.tenant.as_str().to_owned()
    });
    name.clone()
}
