//! `cargo xtask client-bed`: the real demo behind a proxy that breaks connections on request, for tests of clients.
//!
//! What a client promises shows only against a service that loses answers, dies and comes back. The bed runs the
//! service, does the losing, and keeps a log by which a test sees every key that was ever sent.

mod control;
mod faults;
mod journal;
mod proxy;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::Context;
use serde_json::json;

use crate::args::Args;
use crate::demo::{Demo, Stage};
use crate::guard::Guard;
use crate::place::steady_port;
use crate::workspace::{Build, Workspace};
use faults::Schedule;
use journal::Journal;
use proxy::Door;

/// The help text of `cargo xtask client-bed`.
pub const HELP: &str = r#"Starts `firstwrite demo --faults` on a SQLite file in a temporary folder and a proxy in front of it, both on
loopback, and prints one line of JSON on standard output:

  {"proxy":"http://127.0.0.1:P","demo":"http://127.0.0.1:D","refused":"http://127.0.0.1:R","pid":N}

`proxy` is the address for clients, `demo` the same API without faults, and nobody listens at `refused`. The bed
runs until its standard input closes or it is ended by a signal; then the demo and the folder are gone as well.

  --binary PATH   the program to run (default: target/debug/firstwrite, built if it is missing)
  --wait-for D    how long the demo lets callers wait for its provider (default 2s); 0s answers 202 first
  --seed N        of the schedule of faults (default 1)

A request says what is to happen to it:  X-Bed-Fault: cut-after
Several words, with commas between them, are for the first, second, ... request with the same method and path and
key; after the last word nothing more happens. A star behind the last word keeps it: `cut-after, 503*`.

  ok           nothing
  refuse       the connection is closed; nothing is passed on (by the schedule: before a byte is read)
  cut-before   the request is read, the connection is closed; nothing is passed on
  cut-after    the request is passed on and carried out, the connection is closed without an answer
  cut-half     the same, after half of the answer
  502, 504     the request is passed on, and answered with this by the proxy
  503          nothing is passed on; answered by the proxy, with Retry-After: 1, or the schedule's `retry_after`
  delay=MS     the request is passed on after so many milliseconds (at most 60000)

The proxy's own paths, on which no fault happens:

  POST /_bed/faults    the schedule for requests that ask for nothing: probabilities, as in
                       {"seed":7,"cut-after":0.1,"502":0.05,"delay":0.2,"delay_ms":20,"refuse":0.05}
                       Members that are left out are zero, so `{}` ends all faults.
  POST /_bed/close     {"ms":300}: closes the proxy's port for so long, so that connections are refused
  POST /_bed/restart   kills the demo with SIGKILL and starts it again; answers when it serves
  GET  /_bed/log       {"entries":[{"n","at","method","path","key","customer","fault","status"}],"next"}: every
                       request, also those for the status of a key; `at` in milliseconds since the start, `key` as
                       it was sent without quotes, `customer` from a JSON body, `status` as the demo answered.
                       ?since=N begins at the entry number N.
  GET  /_bed/effects   {"payments":[{"id","customer","amount","status"}],"counts":{"CUSTOMER":N}}: the demo's books,
                       of both tenants; put an intent's name into `customer`

While the demo is down, the proxy closes connections without an answer. It speaks HTTP/1.1.
Tokens of the demo: `Authorization: Bearer demo-acme`, and `demo-globex`."#;

/// The demo, its proxy, and what is known of both.
struct Bed {
    stage: Stage<'static>,
    /// Empty for the moment in which it is killed.
    demo: Mutex<Option<Demo<'static>>>,
    address: SocketAddr,
    schedule: Mutex<Schedule>,
    journal: Journal,
    door: Door,
}

/// Runs `cargo xtask client-bed` with the words behind it.
pub fn run(workspace: &Workspace, mut args: Args) -> anyhow::Result<()> {
    let binary = args.value::<PathBuf>("--binary")?;
    let patience: Option<String> = args.value("--wait-for")?;
    let seed = args.value("--seed")?.unwrap_or(1);
    args.finish()?;
    let binary = match binary {
        Some(path) => path.canonicalize().with_context(|| format!("{}", path.display()))?,
        None => Build::Debug.existing_binary(workspace)?,
    };
    let mut words = vec!["--faults".to_owned()];
    words.extend(patience.into_iter().flat_map(|time| ["--wait-for".to_owned(), time]));

    // For the threads of the proxy, which end with the process; so does the guard, which sees the pipe close.
    let guard: &'static Guard = Box::leak(Box::new(Guard::start()?));
    let folder = std::env::temp_dir().join(format!("firstwrite-client-bed-{}", std::process::id()));
    guard.clear(&folder);
    let bed = Bed::start(Stage::in_folder(binary, folder, guard)?.with_words(words), seed)?;
    announce(&bed)?;
    let serving = Arc::clone(&bed);
    std::thread::spawn(move || proxy::serve(&serving));
    std::io::stdin().lock().read_to_end(&mut Vec::new()).context("reading standard input")?;
    bed.end()
}

impl Bed {
    fn start(stage: Stage<'static>, seed: u64) -> anyhow::Result<Arc<Self>> {
        // Ports of their own, since both are closed and taken again.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, steady_port()?));
        let door = Door::open()?;
        let mut demo = stage.start(address.port())?;
        demo.wait_until_it_serves()?;
        Ok(Arc::new(Self {
            stage,
            demo: Mutex::new(Some(demo)),
            address,
            schedule: Mutex::new(Schedule::quiet(seed)),
            journal: Journal::new(),
            door,
        }))
    }

    /// Kills the demo and starts it on the same file.
    fn restart(&self) -> anyhow::Result<()> {
        let mut slot = self.demo.lock().expect("a restart does not panic");
        if let Some(demo) = slot.take() {
            demo.kill()?;
        }
        let mut demo = self.stage.start(self.address.port())?;
        demo.wait_until_it_serves()?;
        *slot = Some(demo);
        Ok(())
    }

    fn end(&self) -> anyhow::Result<()> {
        if let Some(demo) = self.demo.lock().expect("a restart does not panic").take() {
            demo.kill()?;
        }
        std::fs::remove_dir_all(self.stage.folder()).context("cannot delete the demo's folder")
    }
}

fn announce(bed: &Bed) -> anyhow::Result<()> {
    let refused = SocketAddr::from((Ipv4Addr::LOCALHOST, steady_port()?));
    let line = json!({
        "proxy": format!("http://{}", bed.door.address()),
        "demo": format!("http://{}", bed.address),
        "refused": format!("http://{refused}"),
        "pid": std::process::id(),
    });
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).context("cannot write a line")
}
