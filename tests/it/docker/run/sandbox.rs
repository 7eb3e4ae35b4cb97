//! A sandbox looked at while it runs: how closed it is, and where the secrets are that it was given.

use super::*;

const FLAG_SECRET: &str = "typed-hunter-aaa";
const INHERITED_SECRET: &str = "inherited-hunter-aaa";

#[test]
fn a_sandbox_is_hardened_and_secrets_reach_only_the_agent() {
    let scratch = SwarmFixture::new();
    // It writes down what it sees of its own confinement, and the secrets with other letters.
    let look = "printf '%s %s' \"$SECRET_X\" \"$SECRET_Y\" | tr a b > secrets; \
                { id -u; id -G; cat /proc/self/status; ls /sys/class/net; } > seen; \
                sed 's/^/1 /' /proc/1/status >> seen; \
                touch /outside 2>> seen && exit 7; touch /longshore/objects/x 2>> seen && exit 6; \
                ls /longshore/work/*/ > others 2>&1; ls -a /longshore/in; exit 0";
    let tasks = scratch.tasks("feat/closed", json!([story(1, &format!("{WAIT_FOR_GO}{look}"))]));
    let args = [
        "run",
        &tasks,
        "--env",
        &format!("SECRET_X={FLAG_SECRET}"),
        "--env",
        "SECRET_Y",
        "--json",
        "--max",
        "1",
        "--cpus",
        "0.5",
    ];
    let running = scratch.start_with(&args, &[("SECRET_Y", INHERITED_SECRET), ("LONGSHORE_LOG", "trace")]);
    let sandbox = &scratch.sandboxes(1)[0];
    let inspected = sandbox.inspect();
    let swarm = scratch.swarms().pop().expect("a swarm");
    let everything: Vec<String> = resources_with_label(&format!("{}={swarm}", label::SWARM))
        .into_iter()
        .map(|(kind, id)| docker(&[kind, "inspect", &id]).expect("it is there"))
        .collect();
    let printed = docker(&["logs", &sandbox.0]).expect("it runs");
    sandbox.release();
    let ran = running.wait().expect(0, &["1 landed", "relaxed: environment variables: SECRET_X"]);

    let config = &inspected["HostConfig"];
    // Root until the shim, the first program, has become its own user, which starts the agent as another.
    assert_eq!(inspected["Config"]["User"], "0:0");
    let arguments: Vec<u32> = inspected["Args"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|argument| as_text(argument).parse().ok())
        .collect();
    let [uid, shim_uid] = arguments[..] else { panic!("{}", inspected["Args"]) };
    assert!((20_000..40_000).contains(&uid) && shim_uid == uid + 20_000, "{uid} {shim_uid}");
    assert_eq!(config["CapDrop"], json!(["ALL"]));
    // Newer daemons add a prefix.
    let added: Vec<&str> = config["CapAdd"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|name| as_text(name).trim_start_matches("CAP_"))
        .collect();
    assert_eq!(added, ["KILL", "SETGID", "SETUID", "SETPCAP"]);
    let options: Vec<&str> = config["SecurityOpt"].as_array().expect("a list").iter().map(as_text).collect();
    assert!(options.iter().any(|option| option.starts_with("no-new-privileges")), "{options:?}");
    assert!(!options.iter().any(|option| option.contains("unconfined")), "{options:?}");
    assert_eq!(config["ReadonlyRootfs"], true);
    assert_eq!(config["NetworkMode"], "none");
    assert_eq!((&config["Memory"], &config["MemorySwap"]), (&json!(2_u64 << 30), &json!(2_u64 << 30)));
    assert_eq!((&config["NanoCpus"], &config["PidsLimit"]), (&json!(500_000_000), &json!(512)));
    assert_eq!((&config["Privileged"], &inspected["Config"]["Tty"]), (&json!(false), &json!(false)));
    for mode in ["PidMode", "UTSMode", "UsernsMode"] {
        assert_ne!(config[mode], "host", "{mode}");
    }
    for mount in inspected["Mounts"].as_array().expect("a list") {
        assert_eq!(mount["Type"], "volume", "no path of the host: {mount}");
        assert_eq!(
            mount["RW"].as_bool(),
            Some(as_text(&mount["Destination"]).starts_with("/longshore/work")),
            "{mount}"
        );
    }
    assert!(config["Binds"].as_array().is_none_or(Vec::is_empty));
    let labels = &inspected["Config"]["Labels"];
    for (key, value) in
        [(label::SWARM, swarm.as_str()), (label::STORY, "US-001"), (label::ATTEMPT, "1"), (label::ROLE, "sandbox")]
    {
        assert_eq!(labels[key], value);
    }
    assert!(labels[label::ASSIGNMENT].is_string());

    let seen = scratch.show("feat/closed", "seen");
    let row = |name: &str| seen.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).map(str::to_owned);
    assert_eq!(seen.lines().next(), Some(uid.to_string().as_str()), "{seen}");
    assert_eq!(seen.lines().nth(1), Some(uid.to_string().as_str()), "{seen}");
    for capabilities in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(row(capabilities).as_deref(), Some("0000000000000000"), "{seen}");
    }
    let [own, agents] = [shim_uid, uid].map(|id| id.to_string());
    let ids = |file_access: &str| format!("{own}\t{own}\t{own}\t{file_access}");
    // Bits 5, 6 and 7 are KILL, SETGID and SETUID.
    for (name, wanted) in [
        ("NoNewPrivs:", "1"),
        ("Seccomp:", "2"),
        ("1 Uid:", &ids(&agents)),
        ("1 Gid:", &ids(&agents)),
        ("1 Groups:", ""),
        ("1 CapInh:", "0000000000000000"),
        ("1 CapPrm:", "00000000000000e0"),
        ("1 CapEff:", "00000000000000e0"),
        ("1 CapBnd:", "0000000000000000"),
        ("1 CapAmb:", "0000000000000000"),
        ("1 NoNewPrivs:", "1"),
    ] {
        assert_eq!(row(name).as_deref(), Some(wanted), "{seen}");
    }
    assert!(seen.lines().any(|line| line == "lo") && !seen.contains("eth"), "{seen}");

    // The secrets are nowhere but in the agent's environment.
    assert_eq!(scratch.show("feat/closed", "secrets"), format!("{FLAG_SECRET} {INHERITED_SECRET}").replace('a', "b"));
    for secret in [FLAG_SECRET, INHERITED_SECRET] {
        let found = |text: &str| text.contains(secret);
        assert!(!found(&ran.out) && !found(&ran.err), "{}\n{}", ran.out, ran.err);
        assert!(!found(&printed) && !everything.iter().any(|inspected| found(inspected)));
        for path in all_files(&scratch.root().join(".longshore")) {
            let bytes = std::fs::read(&path).expect("read");
            assert!(!found(&String::from_utf8_lossy(&bytes)), "{}", path.display());
        }
        assert_eq!(scratch.git(&["log", "--all", "--format=%H", "-S", secret]), "");
    }
    assert_events_match_schema(&scratch, &ran.out);
}

fn assert_events_match_schema(scratch: &SwarmFixture, stream: &str) {
    let schema: Value = serde_json::from_str(&scratch.longshore(&["schema", "events"]).out).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a good schema");
    assert!(stream.lines().count() > 3, "{stream}");
    for line in stream.lines() {
        let event: Value = serde_json::from_str(line).expect("a line of JSON");
        let errors: Vec<String> = validator.iter_errors(&event).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{event}: {errors:?}");
    }
}
