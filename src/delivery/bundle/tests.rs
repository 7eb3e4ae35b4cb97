//! Bundle headers, valid and malformed.

use super::*;

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn parse(header: &str, objects: u32, rest: usize) -> Result<BundleHeader, BundleError> {
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(b"PACK\0\0\0\x02");
    bytes.extend_from_slice(&objects.to_be_bytes());
    bytes.extend(std::iter::repeat_n(0, rest));
    read_header(bytes.as_slice(), bytes.len() as u64, "sha1")
}

#[test]
fn bundle_versions_2_and_3_are_parsed() {
    let expected = BundleHeader {
        prerequisites: vec![A.parse().expect("valid")],
        refs: vec![("refs/heads/x".into(), B.parse().expect("valid"))],
        pack_offset: 0,
        object_count: 3,
    };
    for start in ["# v2 git bundle\n", "# v3 git bundle\n@object-format=sha1\n"] {
        let header = format!("{start}-{A} a subject\n{B} refs/heads/x\n\n");
        let found = parse(&header, 3, 100).expect("valid");
        assert_eq!(found, BundleHeader { pack_offset: header.len() as u64, ..expected.clone() });
    }
}

#[test]
fn malformed_headers_are_refused() {
    let long = "x".repeat(2 * MAX_HEADER_BYTES as usize);
    for header in [
        String::new(),
        "# v4 git bundle\n\n".into(),
        format!("# v2 git bundle\n@object-format=sha1\n{B} refs/heads/x\n\n"),
        format!("# v3 git bundle\n@filter=blob:none\n{B} refs/heads/x\n\n"),
        format!("# v3 git bundle\n@object-format=sha256\n{B} refs/heads/x\n\n"),
        "# v2 git bundle\nabc refs/heads/x\n\n".into(),
        format!("# v2 git bundle\n{}\n\n", B),
        format!("# v2 git bundle\n{} refs/heads/x\n\n", B.to_uppercase()),
        format!("# v2 git bundle\n{B} refs/heads/x"),
        format!("# v2 git bundle\n{B} {long}\n\n"),
        format!("# v2 git bundle\n{B} refs/heads/x\n-{A} late\n\n"),
    ] {
        assert!(matches!(parse(&header, 1, 100), Err(BundleError::MalformedHeader { .. })), "{header:.80}");
    }
}

#[test]
fn a_pack_claiming_more_objects_than_fit_is_refused() {
    let header = format!("# v2 git bundle\n{B} refs/heads/x\n\n");
    assert!(parse(&header, 10, 100).is_ok());
    assert!(matches!(parse(&header, u32::MAX, 100), Err(BundleError::MalformedHeader { .. })));
    assert!(matches!(read_header(header.as_bytes(), 100, "sha1"), Err(BundleError::MalformedHeader { .. })));
}
