//! The create body as JSON.

use super::*;

fn spec() -> ContainerSpec {
    ContainerSpec {
        name: "n".to_owned(),
        image: "i".to_owned(),
        argv: vec!["/a".to_owned(), "b".to_owned(), "c".to_owned()],
        env: vec![("K".to_owned(), "v=w".to_owned())],
        user: (20_000, 20_001),
        workdir: "/w".to_owned(),
        labels: [("l".to_owned(), "1".to_owned())].into(),
        mounts: vec![VolumeMount {
            volume: "v".to_owned(),
            target: "/t".to_owned(),
            read_only: true,
            subpath: Some("sub".to_owned()),
        }],
        tmpfs: vec![("/tmp".to_owned(), "size=64m".to_owned())],
        memory_limit: 5,
        milli_cpus: 1_500,
        pids_limit: 7,
        network: "none".to_owned(),
        added_capabilities: Vec::new(),
    }
}

#[test]
fn create_body_serializes_the_hardening() {
    let json = serde_json::to_value(create_body(&spec(), true)).unwrap();
    let host = &json["HostConfig"];
    assert_eq!(json["Entrypoint"], serde_json::json!(["/a"]));
    assert_eq!(json["Cmd"], serde_json::json!(["b", "c"]));
    assert_eq!(json["Env"], serde_json::json!(["K=v=w"]));
    assert_eq!(json["User"], "20000:20001");
    assert_eq!(json["Healthcheck"]["Test"], serde_json::json!(["NONE"]));
    assert_eq!(host["CapDrop"], serde_json::json!(["ALL"]));
    assert_eq!(host["SecurityOpt"], serde_json::json!(["no-new-privileges"]));
    assert_eq!((&host["Memory"], &host["MemorySwap"]), (&5.into(), &5.into()));
    assert_eq!(host["NanoCpus"], 1_500_000_000_i64);
    assert_eq!(host["RestartPolicy"]["Name"], "no");
    assert_eq!(host["Mounts"][0]["VolumeOptions"], serde_json::json!({"NoCopy": true, "Subpath": "sub"}));
    assert!(host.get("Binds").is_none());
}

#[test]
fn subpath_is_omitted_without_engine_support() {
    let json = serde_json::to_value(create_body(&spec(), false)).unwrap();
    assert_eq!(json["HostConfig"]["Mounts"][0]["VolumeOptions"], serde_json::json!({"NoCopy": true}));
}
