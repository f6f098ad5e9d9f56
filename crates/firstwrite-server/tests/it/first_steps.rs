//! The first steps of the gateway's documents, taken as they are printed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::process::{Demo, Folder, firstwrite, stderr, stdout};
use crate::upstream::Upstream;

/// The first block of commands in the gateway's document: a gateway, and a request to it.
#[test]
fn the_first_request_of_the_document_is_answered_by_the_api() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gateway.md");
    let docs = fs::read_to_string(docs).unwrap();
    let (_, block) = docs.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let [started, asked] = &block.lines().collect::<Vec<_>>()[..] else { panic!("{block}") };
    let (folder, upstream) = (Folder::new(), Upstream::start());
    let arguments = started.strip_prefix("firstwrite ").expect(started);
    let arguments = arguments.replace("127.0.0.1:3000", &upstream.address.to_string());
    let mut command = firstwrite(&folder);
    command.args(arguments.split(' ')).args(["--listen", "127.0.0.1:0"]);
    let gateway = Demo::start(&mut command);
    let asked = asked.replace("127.0.0.1:8080", &gateway.address.to_string());
    for is_replay in [false, true] {
        let shell = &mut Command::new("sh");
        // A proxy of the machine's is no part of the command as printed.
        for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
            shell.env_remove(name);
        }
        let answered = stdout(&shell.args(["-c", &format!("{asked} -s")]).output().unwrap());
        assert!(answered.starts_with("HTTP/1.1 20"), "{answered}");
        assert_eq!(answered.contains("idempotent-replayed: true"), is_replay, "{answered}");
    }
    assert_eq!(upstream.effects().len(), 1);
}

#[test]
fn a_check_says_where_calls_of_grpc_would_be_refused() {
    let folder = Folder::new();
    for (http2, reason, is_said) in
        [("", "gRPC", true), ("http2 = true\n", "gRPC", false), ("", "signs in", false)]
    {
        let settings = format!(
            "store = 'sqlite:nowhere.db'\n[gateway]\nupstreams = ['http://127.0.0.1:9']\n{http2}\
             tenants = {{ sources = [{{ kind = 'single' }}] }}\n[[gateway.operations]]\n\
             operation = 'POST /shop.Payments/{{method}}'\nunprotected = '{reason}'\n"
        );
        fs::write(folder.path().join("f.toml"), settings).unwrap();
        let checked = folder.run(&["check", "--config", "f.toml"]);
        assert!(checked.status.success(), "{}", stderr(&checked));
        let said = stdout(&checked);
        let names = said.contains("POST /shop.Payments/{method}") && said.contains("http2 = true");
        assert_eq!(names, is_said, "{said}");
    }
}
