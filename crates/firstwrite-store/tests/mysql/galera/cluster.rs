//! Three nodes of a Galera cluster, on loopback, in a folder that goes with them.
//!
//! Each ends with the thread that started it, also if that is killed.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use firstwrite_store::mysql_async::prelude::Queryable as _;
use firstwrite_store::mysql_async::{Conn, Opts};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::own::temporary;
use crate::server::is_required;

/// Where Debian has the library that makes servers a cluster.
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";
const START_MAX: Duration = Duration::from_mins(3);

pub(crate) struct Cluster {
    nodes: Vec<Node>,
    folder: TempDir,
}

struct Node {
    /// For clients, for the group, and for what a node that comes back is sent, in two ways.
    ports: [u16; 4],
    child: Child,
}

impl Cluster {
    /// `None`, and a word about it, where there is no server to start.
    pub(crate) async fn start(count: usize) -> Option<Self> {
        if server().is_none() || !Path::new(PROVIDER).exists() {
            assert!(!is_required(), "mariadbd or {PROVIDER} is missing and everything is required");
            println!("skipped: Galera (mariadbd or its library is missing)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // The server gives up being root, and its user must still be able to enter.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let ports: Vec<[u16; 4]> = (0..count).map(|_| free_ports()).collect();
        let mut cluster = Self { nodes: Vec::new(), folder };
        for node in 0..count {
            cluster.prepare(node);
            let child = cluster.serve(node, &ports, node == 0);
            cluster.nodes.push(Node { ports: ports[node], child });
            cluster.wait_until_synced(node, node + 1).await;
        }
        Some(cluster)
    }

    pub(crate) fn url(&self, node: usize) -> String {
        format!("mysql://root@127.0.0.1:{}/mysql", self.nodes[node].ports[0])
    }

    /// An address that names all nodes.
    pub(crate) fn urls(&self) -> String {
        let hosts = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.ports[0]));
        format!("mysql://root@{}/mysql", hosts.collect::<Vec<_>>().join(","))
    }

    /// Without a warning.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].child.kill().unwrap();
        self.nodes[node].child.wait().unwrap();
    }

    /// Has a node that was killed join again.
    pub(crate) async fn restart(&mut self, node: usize) {
        let ports: Vec<[u16; 4]> = self.nodes.iter().map(|node| node.ports).collect();
        self.nodes[node].child = self.serve(node, &ports, false);
        self.wait_until_synced(node, self.nodes.len()).await;
    }

    fn data(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node-{node}"))
    }

    fn prepare(&self, node: usize) {
        let mut command = Command::new("mariadb-install-db");
        command.args([
            "--no-defaults",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ]);
        command.args(as_user()).arg(format!("--datadir={}", self.data(node).display()));
        command.env("TMPDIR", temporary(&self.folder.path().join(format!("tmp-{node}"))));
        let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(ended.success(), "mariadb-install-db: {ended}");
    }

    fn serve(&self, node: usize, ports: &[[u16; 4]], is_first: bool) -> Child {
        let [clients, group, incremental, whole] = ports[node];
        let all: Vec<String> =
            ports.iter().map(|[_, group, ..]| format!("127.0.0.1:{group}")).collect();
        let log = File::create(self.folder.path().join(format!("log-{node}"))).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(server().unwrap());
        command.arg("--no-defaults").args(as_user());
        command.arg(format!("--datadir={}", self.data(node).display()));
        command.env("TMPDIR", temporary(&self.folder.path().join(format!("tmp-{node}"))));
        command.args(["--bind-address=127.0.0.1", "--socket=socket", "--pid-file=pid"]);
        command.arg(format!("--port={clients}"));
        command.args(["--innodb-flush-log-at-trx-commit=1", "--binlog-format=ROW"]);
        command.args(["--innodb-autoinc-lock-mode=2", "--wsrep-on=ON"]);
        command.arg(format!("--wsrep-provider={PROVIDER}"));
        command.arg("--wsrep-cluster-name=firstwrite");
        command.arg(format!("--wsrep-cluster-address=gcomm://{}", all.join(",")));
        command.arg(format!("--wsrep-node-address=127.0.0.1:{group}"));
        command.arg("--wsrep-sst-method=rsync");
        command.arg(format!("--wsrep-sst-receive-address=127.0.0.1:{whole}"));
        command.arg(format!(
            "--wsrep-provider-options=base_port={group};gmcast.listen_addr=tcp://127.0.0.1:{group};\
             ist.recv_addr=127.0.0.1:{incremental}"
        ));
        if is_first {
            command.arg("--wsrep-new-cluster");
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command.spawn().unwrap()
    }

    /// Waits until a node has everything and sees `size` nodes.
    async fn wait_until_synced(&mut self, node: usize, size: usize) {
        let started = Instant::now();
        let mut tick = tokio::time::interval(Duration::from_millis(200));
        while !self.is_synced(node, size).await {
            let ended = self.nodes[node].child.try_wait().unwrap();
            let log = self.folder.path().join(format!("log-{node}"));
            let words = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none(), "node {node} ended:\n{}", words());
            assert!(started.elapsed() < START_MAX, "node {node} does not join:\n{}", words());
            tick.tick().await;
        }
        println!("node {node} is synced after {:.1} s", started.elapsed().as_secs_f64());
    }

    async fn is_synced(&self, node: usize, size: usize) -> bool {
        let Ok(mut conn) = Conn::new(Opts::from_url(&self.url(node)).unwrap()).await else {
            return false;
        };
        let sql = "SHOW GLOBAL STATUS WHERE Variable_name IN
                   ('wsrep_local_state_comment', 'wsrep_cluster_size')";
        let Ok(rows) = conn.query::<(String, String), _>(sql).await else { return false };
        let says = |value: &str| rows.iter().any(|(_, said)| said == value);
        says("Synced") && says(&size.to_string())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            // One that was killed is dead already.
            drop(node.child.kill());
            drop(node.child.wait());
        }
    }
}

fn server() -> Option<PathBuf> {
    let usual = ["/usr/sbin/mariadbd", "/usr/bin/mariadbd", "/usr/local/sbin/mariadbd"];
    usual.iter().map(PathBuf::from).find(|path| path.exists())
}

/// The server refuses to be root.
fn as_user() -> Vec<&'static str> {
    let is_root = std::fs::metadata("/proc/self")
        .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if is_root { vec!["--user=mysql"] } else { vec![] }
}

/// Free now, and below what the kernel hands out by itself.
fn free_ports() -> [u16; 4] {
    std::array::from_fn(|_| {
        let mut tries = std::iter::repeat_with(|| fastrand::u16(20_000..32_000)).take(1000);
        tries.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()).unwrap()
    })
}
