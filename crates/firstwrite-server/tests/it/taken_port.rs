//! What a gateway leaves behind that could not start, and what it says when it does.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use crate::process::{Demo, Folder, stderr};

const SETTINGS: &str = "[gateway]\nupstreams = ['http://127.0.0.1:9']\n\
    [gateway.tenants]\nanonymous = true\n[[gateway.tenants.sources]]\nkind = 'authorization'\n";

#[test]
fn a_gateway_whose_port_is_taken_leaves_no_store_behind() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    for (flag, free) in [("--listen", "--operator"), ("--operator", "--listen")] {
        let folder = Folder::new();
        fs::write(folder.path().join("gateway.toml"), SETTINGS).unwrap();
        let start = ["gateway", "--config", "gateway.toml", "--create", "--store", "sqlite:new.db"];
        let refused = folder.refuse(&[&start[..], &[flag, &taken, free, "127.0.0.1:0"]].concat());
        assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(flag), "{}", stderr(&refused));
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, ["gateway.toml"]);
    }
    drop(held);
}

#[test]
fn few_descriptors_are_worth_a_warning_where_more_were_asked_for() {
    for (asked_for, warns) in [("", false), ("connections_max = 5000\n", true)] {
        let folder = Folder::new();
        let settings = SETTINGS.replacen('\n', &format!("\n{asked_for}"), 1);
        fs::write(folder.path().join("gateway.toml"), settings).unwrap();
        let mut command = Command::new("sh");
        let binary = env!("CARGO_BIN_EXE_firstwrite");
        let start = format!(
            "ulimit -n 512; exec '{binary}' gateway --create --config gateway.toml --listen 127.0.0.1:0"
        );
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let gateway =
            Demo::logging_to(command.args(["-c", &start]).current_dir(folder.path()), log);
        drop(gateway);
        let log = fs::read_to_string(folder.path().join("log")).unwrap();
        assert_eq!(log.contains("fewer connections"), warns, "{log}");
    }
}
