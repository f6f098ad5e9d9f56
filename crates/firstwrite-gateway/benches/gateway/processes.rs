//! The processes of a measurement: the upstream, nginx, and gateways.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use firstwrite::Policy;
use firstwrite_core::{BoxError, Store};
use firstwrite_gateway::tenants::{Settings, Tenants};
use firstwrite_gateway::{
    Calling, Forwarding, Gateway, Listening, OperationExtras, Operations, Rules, Target,
};
use firstwrite_store::{PostgresOptions, PostgresStore};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::Variant;
use crate::naive::Naive;

/// The API behind the proxies.
pub(crate) struct Upstream {
    process: Process,
    address: String,
}

/// Whoever stands in front of it.
pub(crate) struct Proxy {
    pub(crate) address: String,
    /// None for the upstream itself, whose time is not counted.
    process: Option<Process>,
    _folder: TempDir,
}

/// A process, killed when dropped, and those it started.
struct Process(Child);

impl Upstream {
    pub(crate) fn start() -> Result<Self, BoxError> {
        let (process, address) = itself(&["--serve-upstream"])?;
        Ok(Self { process, address })
    }
}

impl Proxy {
    pub(crate) fn start(variant: Variant, upstream: &Upstream) -> Result<Self, BoxError> {
        debug_assert!(upstream.process.0.id() > 0);
        let folder = TempDir::new()?;
        let file = folder.path().join("bench.db").display().to_string();
        let (process, address) = match variant {
            Variant::Direct => (None, upstream.address.clone()),
            Variant::Nginx => {
                let (process, address) = start_nginx(&folder, &upstream.address)?;
                (Some(process), address)
            }
            Variant::PassThrough | Variant::FreshSqlite | Variant::ReplaySqlite => {
                let store = format!("sqlite:{file}");
                let (process, address) = itself(&["--serve-gateway", &upstream.address, &store])?;
                (Some(process), address)
            }
            Variant::FreshPostgres(_) | Variant::Naive(_) => {
                let store = std::env::var("FIRSTWRITE_TEST_POSTGRES")?;
                let by = if let Variant::Naive(_) = variant { "by hand" } else { "batched" };
                let (process, address) =
                    itself(&["--serve-gateway", &upstream.address, &store, by])?;
                (Some(process), address)
            }
        };
        Ok(Self { address, process, _folder: folder })
    }

    /// CPU time of all threads of the proxy so far.
    pub(crate) fn cpu_nanos(&self) -> Result<u64, BoxError> {
        let Some(Process(child)) = &self.process else { return Ok(0) };
        let mut total = 0;
        for process in family(child.id())? {
            for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
                let schedule = std::fs::read_to_string(task?.path().join("schedstat"))?;
                let on_cpu = schedule.split_whitespace().next().ok_or("an empty schedstat")?;
                total += on_cpu.parse::<u64>()?;
            }
        }
        Ok(total)
    }
}

/// A process and those it started: nginx works in children.
fn family(process: u32) -> Result<Vec<u32>, BoxError> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
    let mut family = vec![process];
    for child in children.split_whitespace() {
        family.push(child.parse()?);
    }
    Ok(family)
}

/// This program in another role; it says its address first.
fn itself(arguments: &[&str]) -> Result<(Process, String), BoxError> {
    let mut child =
        Command::new(std::env::current_exe()?).args(arguments).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().ok_or("there is no standard output")?;
    let mut address = String::new();
    BufReader::new(stdout).read_line(&mut address)?;
    Ok((Process(child), address.trim().to_owned()))
}

/// Where nginx is, if it is installed.
pub(crate) fn nginx() -> Option<PathBuf> {
    ["/usr/sbin/nginx", "/usr/bin/nginx"].map(PathBuf::from).into_iter().find(|path| path.exists())
}

/// As a careful operator sets it up: connections to the upstream are kept, nothing is logged.
fn start_nginx(folder: &TempDir, upstream: &str) -> Result<(Process, String), BoxError> {
    let address = StdListener::bind("127.0.0.1:0")?.local_addr()?;
    let place = folder.path().display();
    let settings = format!(
        "daemon off; worker_processes 2; pid {place}/pid; error_log {place}/error.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n  access_log off; keepalive_requests 100000000; tcp_nodelay on;\n  \
         client_body_temp_path {place}/body; proxy_temp_path {place}/proxy;\n  \
         fastcgi_temp_path {place}/f; uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;\n  \
         upstream api {{ server {upstream}; keepalive 128; keepalive_requests 100000000; }}\n  \
         server {{ listen {address};\n    location / {{ proxy_pass http://api; \
         proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header Host $host; \
         proxy_set_header X-Forwarded-For $remote_addr; }}\n  }}\n}}\n"
    );
    let file = folder.path().join("nginx.conf");
    std::fs::write(&file, settings)?;
    let program = nginx().ok_or("there is no nginx")?;
    let process =
        Process(Command::new(program).arg("-c").arg(&file).stderr(Stdio::null()).spawn()?);
    for _ in 0..10_000 {
        if std::net::TcpStream::connect(address).is_ok() {
            return Ok((process, address.to_string()));
        }
        std::thread::yield_now();
    }
    Err("nginx does not listen".into())
}

/// What this program is in its other roles.
pub(crate) fn serve(role: &str, arguments: &[String]) -> Result<(), BoxError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let threads = std::thread::available_parallelism()?.get();
    runtime.block_on(async {
        match (role, arguments) {
            ("--serve-upstream", _) => serve_upstream().await,
            ("--serve-gateway", [upstream, store]) => {
                serve_gateway(upstream, open(store).await?, threads).await
            }
            // Its connections live on the shared runtime, and so does whoever uses them: faster for it.
            ("--serve-gateway", [upstream, store, by]) if by == "by hand" => {
                serve_gateway(upstream, Arc::new(Naive::connect(store).await?), 0).await
            }
            ("--serve-gateway", [upstream, store, _]) => {
                PostgresStore::migrate(store, PostgresOptions::default()).await?;
                serve_gateway(upstream, open(store).await?, threads).await
            }
            _ => Err("there is no such role".into()),
        }
    })
}

fn say(address: SocketAddr) -> Result<(), BoxError> {
    println!("{address}");
    Ok(std::io::stdout().flush()?)
}

async fn serve_upstream() -> Result<(), BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let service = service_fn(made);
            let (Ok(()) | Err(_)) =
                http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn made(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let length = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
    let mut response = Response::new(Full::from(format!("{{\"bytes\":{length}}}")));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

async fn open(address: &str) -> Result<Arc<dyn Store>, BoxError> {
    firstwrite_store::create(address).await?;
    Ok(firstwrite_store::open(address, firstwrite_store::Access::Write).await?)
}

async fn serve_gateway(
    upstream: &str,
    store: Arc<dyn Store>,
    threads: usize,
) -> Result<(), BoxError> {
    let rules = Rules {
        upstreams: vec![Target::new(&format!("http://{upstream}"))?],
        calling: Calling::default(),
        forwarding: Forwarding { tells_record: true, ..Forwarding::default() },
        operations: Arc::new(Operations::new(Policy::default(), OperationExtras::default())),
        tenants: Arc::new(Tenants::new(&Settings::single(), || std::time::UNIX_EPOCH)?),
        observer: None,
        counting: None,
        metrics: None,
        tracer: None,
        service_name: None,
        cors: None,
        problem_base: firstwrite_core::ProblemBase::default(),
        secrets: firstwrite_core::Secrets::default(),
        clock: || std::time::UNIX_EPOCH,
    };
    let listening = Listening { threads, ..Listening::at(([127, 0, 0, 1], 0).into()) };
    let gateway = Gateway::start(store, &listening, rules).await?;
    say(gateway.address())?;
    std::future::pending().await
}

impl Drop for Process {
    /// Asked to end, nginx ends its workers too; killed, it would leave them behind.
    fn drop(&mut self) {
        let asked = Command::new("kill").arg(self.0.id().to_string()).status();
        if !asked.is_ok_and(|status| status.success()) {
            // Already gone is as good as killed.
            drop(self.0.kill());
        }
        drop(self.0.wait());
    }
}
