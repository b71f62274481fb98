use super::*;

fn parse(text: &str) -> Result<Loaded, ConfigError> {
    Loaded::parse(text, &Environment::default())
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let err = berth_types::chain(&parse(text).unwrap_err());
    assert!(err.contains(expected), "{err}");
}

#[test]
fn no_file_means_documented_defaults() {
    let config = parse("{}").unwrap().config;
    let cidrs: Vec<String> = config.pod_cidrs.iter().map(ToString::to_string).collect();
    assert_eq!(cidrs, ["172.16.240.0/20", "fd62:6572:7468::/64"]);
    assert_eq!(config.cool_down, Duration::from_secs(30));
    assert!(config.families_by_default);
}

#[test]
fn what_is_wrong_is_named_with_what_is_allowed() {
    refused(r#"{"pool_size": 3}"#, "`pool_size`: unknown field `pool_size`, expected one of");
    refused(
        r#"{"log": {"lvl": "x"}}"#,
        "`log.lvl`: unknown field `lvl`, expected `level` or `format`",
    );
    refused(r#"{"cool_down": 30}"#, "`cool_down`: invalid type: integer `30`");
    refused(r#"{"cool_down": "30 parsecs"}"#, "such as 500ms, 30s, 2m or 1h");
    refused(r#"{"gc_interval": "3654days"}"#, "\"3654days\" is more than the 10years ");
    refused(r#"{"socket": "/a\u0000b"}"#, "`socket`: a NUL byte");
    refused(r#"{"cni_conf": {"source": "/a\u0000b"}}"#, "`cni_conf.source`: a NUL byte");
    refused(
        r#"{"min_pool_size": 9, "max_pool_size": 3}"#,
        "`min_pool_size`: 9 is more than max_pool_size, which is 3",
    );
    refused(
        r#"{"ip_stack": "ipv5"}"#,
        "`ip_stack`: unknown variant `ipv5`, expected one of `ipv4`, `ipv6`, `dual`",
    );
    refused(
        r#"{"pod_cidrs": ["10.1.2.3/16"]}"#,
        "10.1.2.3/16 has host bits set; 10.1.0.0/16 is meant",
    );
    refused(r#"{"ip_stack": "dual", "pod_cidrs": ["10.1.0.0/16"]}"#, "no IPv6 prefix is given");
    refused(r#"{"daemon_mode": "ENIMultiIP"}"#, "comes in stage 2");
    refused(r#"{"mtu": 1000}"#, "allowed: 0 for the uplink's, or 1280 to 65535");
    refused(r#"{"exclude": ["10.1.0"]}"#, "\"10.1.0\" is neither an address nor a CIDR");
    refused(r#"{"host_prefix": "eth/"}"#, "`host_prefix`");
    refused(r#"{"socket": "berth.sock"}"#, "`socket`: an absolute path is needed");
    refused(r#"{"log": {"level": "berth=loud"}}"#, "`log.level`: \"berth=loud\"");
    refused(r#"{"log": {"level": "warning"}}"#, "allowed: off, error, warn, info, debug or trace");
    refused(r#"{"exclude": ["1.2.3.4"]}"#, "`exclude`: 1.2.3.4/32 is in no pod CIDR");
    refused(
        r#"{"pod_cidrs": ["10.9.0.0/16", "10.9.4.0/24"]}"#,
        "10.9.0.0/16 and 10.9.4.0/24 overlap",
    );
    refused("[1]", "is a JSON object");
    refused("{", "is not JSON: EOF");
}

#[test]
fn the_families_follow_from_the_cidrs() {
    let loaded = parse(r#"{"pod_cidrs": ["10.1.0.0/16"]}"#).unwrap();
    assert_eq!(loaded.effective["ip_stack"], "ipv4");
    let loaded = parse(r#"{"ip_stack": "ipv6"}"#).unwrap();
    assert_eq!(loaded.config.pod_cidrs.len(), 1);
}

#[test]
fn every_value_says_where_it_comes_from() {
    let environment = Environment { socket: Some("/tmp/s".into()), ..Environment::default() };
    let loaded =
        Loaded::parse(r#"{"mtu": 1400, "log": {"level": "debug"}}"#, &environment).unwrap();
    assert_eq!(loaded.sources["socket"], "environment");
    assert_eq!(loaded.sources["mtu"], "file");
    assert_eq!(loaded.sources["log.level"], "file");
    assert_eq!(loaded.sources["log.format"], "default");
    assert_eq!(loaded.effective["socket"], "/tmp/s");
    assert_eq!(loaded.effective["cool_down"], "30s");
}

#[test]
fn the_effective_configuration_is_a_configuration() {
    let loaded = parse(r#"{"cni_conf": {"path": ""}}"#).unwrap();
    assert_eq!(loaded.config.conflist, None);
    let again = parse(&loaded.effective.to_string()).unwrap();
    assert_eq!(again.effective, loaded.effective);
}

#[test]
fn a_file_without_end_is_not_read_to_its_end() {
    for endless in ["/dev/zero", "/dev/full"] {
        let loaded = Loaded::load(Some(endless.into()), &Environment::default());
        assert!(matches!(loaded, Err(ConfigError::Read { .. })), "{endless}: {loaded:?}");
    }
}
