//! Gateways killed at any moment and started again, while clients send what must happen once until they are
//! answered.
//!
//! `FIRSTWRITE_TEST_KILLS=1000` kills a thousand.

use std::collections::BTreeMap;
use std::env;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::database::on_every_store;
use crate::http::{Request, Response};
use crate::process::{Demo, Folder, stdout};
use crate::scene::{Scene, pay_at, said};
use crate::upstream::{Effect, made};

on_every_store! {
    killed_at_random_nothing_is_done_twice_and_no_answer_changes,
}

/// Enough for every run to see that the machinery works.
const KILLS_DEFAULT: usize = 20;
const CLIENTS: usize = 6;
/// How long one lives at most.
const LIFE_MAX: Duration = Duration::from_millis(250);
/// A key that is not answered after that long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(30);

/// At `/payments` the API does whatever it is asked for; at `/recognised` it recognises keys.
const SETTINGS: &str = "[gateway.default]\nlease = '2s'\nretry_after = '1s'\n\
    [[gateway.operations]]\noperation = 'POST /recognised'\nlease = '2s'\non_lost_answer = 'resend'\n";

/// The key and the path of a request.
type Asked = (String, &'static str);

/// What is shared by clients and whoever kills.
struct Run {
    addresses: Vec<SocketAddr>,
    /// How many killings there were.
    killed: AtomicUsize,
    is_over: AtomicBool,
    /// Every answer but refusals, by request.
    answers: Mutex<BTreeMap<Asked, Vec<Response>>>,
    /// Requests of which nobody knows how they ended.
    unknown: Mutex<Vec<String>>,
}

#[expect(clippy::print_stdout, reason = "a run that went wrong can be looked at by its seed")]
fn killed_at_random_nothing_is_done_twice_and_no_answer_changes(folder: &Folder) {
    let kills = env::var("FIRSTWRITE_TEST_KILLS").ok().and_then(|text| text.parse().ok());
    let kills = kills.unwrap_or(KILLS_DEFAULT);
    let seed = firstwrite_testkit::seed();
    let scene = Scene::new(folder, SETTINGS);
    // Two on a server; an SQLite file is one process's.
    let count = if folder.store().starts_with("sqlite") { 1 } else { 2 };
    let mut gateways: Vec<Demo> = (0..count).map(|_| scene.gateway()).collect();
    let run = Run {
        addresses: gateways.iter().map(|gateway| gateway.address).collect(),
        killed: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
        answers: Mutex::default(),
        unknown: Mutex::default(),
    };
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (run, seed) = (&run, seed.wrapping_add(client as u64 + 1));
            scope.spawn(move || run.client(client, fastrand::Rng::with_seed(seed)));
        }
        let mut random = fastrand::Rng::with_seed(seed);
        while run.killed.load(Ordering::SeqCst) < kills {
            let victim = random.usize(..gateways.len());
            let address = gateways[victim].address;
            thread::park_timeout(LIFE_MAX.mul_f64(random.f64()));
            gateways.swap_remove(victim).kill();
            run.killed.fetch_add(1, Ordering::SeqCst);
            gateways.push(scene.gateway_again(address));
        }
        run.is_over.store(true, Ordering::SeqCst);
    });
    gateways.into_iter().for_each(Demo::kill);
    scene.upstream.wait_alone();
    let judged = judge(&scene, &run);
    println!("{kills} kills: {judged}");
}

impl Run {
    /// Sends one request after the other, each until it is answered, and some once more.
    fn client(&self, client: usize, mut random: fastrand::Rng) {
        for number in 0.. {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let key = format!("order-{client}-{number}");
            let path = if random.bool() { "/payments" } else { "/recognised" };
            let request = pay_at(path, &key);
            if random.u8(..) < 25 {
                // Hangs up at once, and asks again as if nothing had happened.
                drop(request.try_start(self.address(&mut random)));
            }
            let times = if random.u8(..) < 64 { 2 } else { 1 };
            for _ in 0..times {
                self.until_answered(&key, path, &request, &mut random);
            }
        }
    }

    fn address(&self, random: &mut fastrand::Rng) -> SocketAddr {
        self.addresses[random.usize(..self.addresses.len())]
    }

    #[expect(clippy::disallowed_methods, reason = "how long a key is blocked is real time")]
    fn until_answered(
        &self,
        key: &str,
        path: &'static str,
        request: &Request,
        random: &mut fastrand::Rng,
    ) {
        let asked_at = Instant::now();
        while asked_at.elapsed() < STUCK_AFTER {
            let Some(answer) = request.attempt(self.address(random)) else {
                thread::yield_now();
                continue;
            };
            match answer.status {
                201 => {
                    let mut answers = self.answers.lock().unwrap();
                    answers.entry((key.to_owned(), path)).or_default().push(answer);
                    return;
                }
                409 if answer.problem() == "in-progress" => {}
                409 if path == "/payments" && answer.problem() == "outcome-unknown" => {
                    self.unknown.lock().unwrap().push(key.to_owned());
                    return;
                }
                // Whoever was killed had the store, and it is not back yet.
                503 if answer.problem() == "store-unavailable" => {}
                _ => panic!("{key}: {answer:?}"),
            }
        }
        panic!("{key} is stuck");
    }
}

/// What the API did, by the client's key.
fn effects(scene: &Scene<'_>) -> BTreeMap<String, Vec<Effect>> {
    let mut effects: BTreeMap<String, Vec<Effect>> = BTreeMap::new();
    for effect in scene.upstream.effects() {
        effects.entry(effect.client_key().to_owned()).or_default().push(effect);
    }
    effects
}

/// Compares what clients were told with what the API did, settles what nobody knows, and retries everything.
fn judge(scene: &Scene<'_>, run: &Run) -> String {
    let answers = run.answers.lock().unwrap();
    let mut unknown = run.unknown.lock().unwrap().clone();
    unknown.sort();
    unknown.dedup();
    // The truth is known now: nobody is left who could still do something.
    let done = effects(scene);
    let free: Vec<&String> = unknown.iter().filter(|key| !done.contains_key(*key)).collect();
    for key in free.iter().take(SETTLED_MAX) {
        scene.settle_as_not_happened(key);
    }
    let gateway = scene.gateway();
    for key in free.iter().take(SETTLED_MAX) {
        assert_eq!(gateway.answer(&pay_at("/payments", key)).status, 201, "{key}");
    }
    let done = effects(scene);
    for (key, effects) in &done {
        assert_eq!(effects.len(), 1, "{key}: {effects:?}");
    }
    for ((key, path), told) in &*answers {
        let again = gateway.answer(&pay_at(path, key));
        assert!(again.is_replay(), "{key}: {again:?}");
        for told in told {
            assert_eq!(said(told), said(&again), "{key}");
        }
        assert_eq!(again.body, made(&done[key][0]).into_bytes(), "{key}");
    }
    drop(gateway);
    assert!(!answers.is_empty(), "nothing was answered");
    let listed = ["keys", "list", "--state", "reserved", "--store", scene.folder.store()];
    let listed = stdout(&scene.folder.run(&listed));
    assert!(!listed.contains("lease,"), "somebody still holds a key: {listed}");
    let (count, unknown, free) = (answers.len(), unknown.len(), free.len());
    format!("{count} answered, {unknown} unknown, {free} of them not done")
}

/// Each is a process of its own.
const SETTLED_MAX: usize = 20;
