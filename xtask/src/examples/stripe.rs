//! The official Stripe library, whose first answer is lost, against a stand-in for Stripe.

use std::process::Command;

use firstwrite_chaos::place::free_port;
use firstwrite_chaos::process;

use super::Ground;

pub(super) fn check(ground: &Ground<'_>) -> anyhow::Result<()> {
    let port = free_port()?;
    let mut command = Command::new(ground.python.join("python"));
    // It keeps what it made in the folder where it runs.
    command.arg(ground.sources.join("upstream.py")).arg(port.to_string());
    let upstream = ground.start("localstripe", command.current_dir(&ground.folder), port)?;
    let gateway = ground.gateway(upstream.address, "sqlite:stripe.db")?;
    let mut pay = Command::new(ground.python.join("python"));
    pay.arg(ground.sources.join("pay.py")).arg(format!("http://{}", gateway.address));
    // A machine's own proxy cannot reach our loopback.
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
    {
        pay.env_remove(name);
    }
    // It says by its exit code whether one customer was made, and that it asked more than once.
    process::run(pay.current_dir(&ground.folder))
}
