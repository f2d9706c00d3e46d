# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_convoy_global_optspecs
    string join \n f/foreground gso= tun-offload= udp-gro= aead= batch= clamp-mss= log-format= metrics= metrics-token-file= h/help V/version
end

function __fish_convoy_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_convoy_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_convoy_using_subcommand
    set -l cmd (__fish_convoy_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c convoy -n "__fish_convoy_needs_command" -l gso -d 'Send several datagrams in one call (UDP_SEGMENT)' -r -f -a "auto\t'Use it if the kernel supports it'
on\t'Fail if the kernel does not support it'
off\t'Do not use it'"
complete -c convoy -n "__fish_convoy_needs_command" -l tun-offload -d 'Exchange super-packets with the TUN device (TSO, USO)' -r -f -a "auto\t'Use it if the kernel supports it'
on\t'Fail if the kernel does not support it'
off\t'Do not use it'"
complete -c convoy -n "__fish_convoy_needs_command" -l udp-gro -d 'Receive several datagrams in one call (UDP_GRO)' -r -f -a "auto\t'Use it if the kernel supports it'
on\t'Fail if the kernel does not support it'
off\t'Do not use it'"
complete -c convoy -n "__fish_convoy_needs_command" -l aead -d 'Seal and open packets sixteen at a time, or one by one with ring' -r -f -a "auto\t'AVX-512 if the CPU has it, otherwise ring'
ring\t'ring'"
complete -c convoy -n "__fish_convoy_needs_command" -l batch -d 'Most packets in one batch, 1 to 50' -r
complete -c convoy -n "__fish_convoy_needs_command" -l clamp-mss -d 'Lower the MSS in TCP handshakes to what the interface\'s MTU carries, in both directions' -r -f -a "true\t''
false\t''"
complete -c convoy -n "__fish_convoy_needs_command" -l log-format -d 'Format of the log, which goes to stdout' -r -f -a "auto\t'Text on a terminal, fields for systemd\'s journal, elsewhere JSON'
text\t'Human-readable'
json\t'One JSON object per line, always with time, severity and message'
journal\t'Fields, sent to systemd\'s journal instead of stdout'"
complete -c convoy -n "__fish_convoy_needs_command" -l metrics -d 'Serve metrics for Prometheus on a Unix socket, or on a port of this machine' -r
complete -c convoy -n "__fish_convoy_needs_command" -l metrics-token-file -d 'Answer only requests that bear the token in FILE; a port needs one' -r -F
complete -c convoy -n "__fish_convoy_needs_command" -s f -l foreground -d 'Stay in the foreground'
complete -c convoy -n "__fish_convoy_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c convoy -n "__fish_convoy_needs_command" -s V -l version -d 'Print version'
complete -c convoy -n "__fish_convoy_needs_command" -a "up" -d 'Bring up a tunnel from its configuration file: interface, routes, name servers, kill switch'
complete -c convoy -n "__fish_convoy_needs_command" -a "exec" -d 'Run a command that sees only a tunnel, without root'
complete -c convoy -n "__fish_convoy_needs_command" -a "forward" -d 'Forward ports of this host, without a tunnel'
complete -c convoy -n "__fish_convoy_needs_command" -a "import" -d 'Print a file for `convoy forward` that does what a file of rinetd says'
complete -c convoy -n "__fish_convoy_needs_command" -a "down" -d 'Take a tunnel down and put everything back'
complete -c convoy -n "__fish_convoy_needs_command" -a "reload" -d 'Apply the changes in a tunnel\'s configuration file'
complete -c convoy -n "__fish_convoy_needs_command" -a "status" -d 'Show which tunnels are up, and what is wrong'
complete -c convoy -n "__fish_convoy_needs_command" -a "events" -d 'Print what happens to tunnels, as it happens'
complete -c convoy -n "__fish_convoy_needs_command" -a "capture" -d 'Record the packets inside a tunnel for Wireshark or tshark'
complete -c convoy -n "__fish_convoy_needs_command" -a "pause" -d 'Let packets leave outside a tunnel for a time, e.g. for a captive portal'
complete -c convoy -n "__fish_convoy_needs_command" -a "resume" -d 'End a pause'
complete -c convoy -n "__fish_convoy_needs_command" -a "log" -d 'Log more or less of a running tunnel or daemon for a time'
complete -c convoy -n "__fish_convoy_needs_command" -a "check" -d 'Check a configuration file and show what is wrong with it'
complete -c convoy -n "__fish_convoy_needs_command" -a "doctor" -d 'Find out what keeps a tunnel from working or from being fast, and what to do about it'
complete -c convoy -n "__fish_convoy_needs_command" -a "genkey" -d 'Generate a private key and print it'
complete -c convoy -n "__fish_convoy_needs_command" -a "genpsk" -d 'Generate a preshared key and print it'
complete -c convoy -n "__fish_convoy_needs_command" -a "pubkey" -d 'Print the public key of the private key on standard input'
complete -c convoy -n "__fish_convoy_needs_command" -a "stats" -d 'Show the counters of a running daemon'
complete -c convoy -n "__fish_convoy_needs_command" -a "profile" -d 'Profile a running daemon or forwarder: its CPU time by function, and its system calls'
complete -c convoy -n "__fish_convoy_needs_command" -a "speedtest" -d 'Measure a tunnel on this machine, or one between two hosts'
complete -c convoy -n "__fish_convoy_needs_command" -a "help" -d 'Explain a command, or the keys of a configuration file (`convoy help config`)'
complete -c convoy -n "__fish_convoy_using_subcommand up" -l gso -d 'Send several datagrams in one call (UDP_SEGMENT)' -r -f -a "auto\t'Use it if the kernel supports it'
on\t'Fail if the kernel does not support it'
off\t'Do not use it'"
complete -c convoy -n "__fish_convoy_using_subcommand up" -l tun-offload -d 'Exchange super-packets with the TUN device (TSO, USO)' -r -f -a "auto\t'Use it if the kernel supports it'
on\t'Fail if the kernel does not support it'
off\t'Do not use it'"
complete -c convoy -n "__fish_convoy_using_subcommand up" -l udp-gro -d 'Receive several datagrams in one call (UDP_GRO)' -r -f -a "auto\t'Use it if the kernel supports it'
on\t'Fail if the kernel does not support it'
off\t'Do not use it'"
complete -c convoy -n "__fish_convoy_using_subcommand up" -l aead -d 'Seal and open packets sixteen at a time, or one by one with ring' -r -f -a "auto\t'AVX-512 if the CPU has it, otherwise ring'
ring\t'ring'"
complete -c convoy -n "__fish_convoy_using_subcommand up" -l batch -d 'Most packets in one batch, 1 to 50' -r
complete -c convoy -n "__fish_convoy_using_subcommand up" -l log-format -d 'Format of the log, which goes to stdout' -r -f -a "auto\t'Text on a terminal, fields for systemd\'s journal, elsewhere JSON'
text\t'Human-readable'
json\t'One JSON object per line, always with time, severity and message'
journal\t'Fields, sent to systemd\'s journal instead of stdout'"
complete -c convoy -n "__fish_convoy_using_subcommand up" -l metrics -d 'Serve metrics for Prometheus on a Unix socket, or on a port of this machine' -r
complete -c convoy -n "__fish_convoy_using_subcommand up" -l metrics-token-file -d 'Answer only requests that bear the token in FILE; a port needs one' -r -F
complete -c convoy -n "__fish_convoy_using_subcommand up" -s L -l local -d 'Listen on this host, and connect inside; with /udp, for datagrams' -r
complete -c convoy -n "__fish_convoy_using_subcommand up" -s R -l reverse -d 'Listen inside the tunnel, and connect from this host' -r
complete -c convoy -n "__fish_convoy_using_subcommand up" -l socks5 -d 'Serve SOCKS5 on this host, and connect inside, also for UDP' -r
complete -c convoy -n "__fish_convoy_using_subcommand up" -l http-connect -d 'Serve HTTP\'s CONNECT on this host, and connect inside' -r
complete -c convoy -n "__fish_convoy_using_subcommand up" -l allow -d 'Let only these clients use the listeners of -L, --socks5 and --http-connect' -r
complete -c convoy -n "__fish_convoy_using_subcommand up" -l deny -d 'Deny these clients; takes precedence over --allow' -r
complete -c convoy -n "__fish_convoy_using_subcommand up" -l login-file -d 'Require the user:password in the first line of FILE from clients of --socks5 and --http-connect' -r -F
complete -c convoy -n "__fish_convoy_using_subcommand up" -l nat -d 'Act as a NAT gateway: forward peers\' traffic through this user\'s sockets' -r -f -a "user\t'Through this user\'s sockets'
off\t'None, even if the file enables it'"
complete -c convoy -n "__fish_convoy_using_subcommand up" -l nat-allow -d 'Let peers reach these targets of --nat, although they are refused by default' -r
complete -c convoy -n "__fish_convoy_using_subcommand up" -l nat-deny -d 'Refuse these targets of --nat; takes precedence over --nat-allow' -r
complete -c convoy -n "__fish_convoy_using_subcommand up" -l buffer -d 'The buffer of a connection while bytes move, 8K to 256K [default: 64K]' -r
complete -c convoy -n "__fish_convoy_using_subcommand up" -l engine -d 'Engine of the network inside' -r -f -a "auto\t'The first that works here'
namespace\t'The kernel\'s network, in a namespace of the user'
smoltcp\t'A network in this program: slower, for where namespaces or TUN devices are forbidden'"
complete -c convoy -n "__fish_convoy_using_subcommand up" -l clamp-mss -d 'Lower the MSS in TCP handshakes to what the interface\'s MTU carries, in both directions' -r -f -a "true\t''
false\t''"
complete -c convoy -n "__fish_convoy_using_subcommand up" -s f -l foreground -d 'Stay in the foreground'
complete -c convoy -n "__fish_convoy_using_subcommand up" -l adopt -d 'Adopt the interface if wg-quick has set it up'
complete -c convoy -n "__fish_convoy_using_subcommand up" -l userspace -d 'Need no root and change nothing on this host: forward ports into and out of the tunnel'
complete -c convoy -n "__fish_convoy_using_subcommand up" -l nat-dns -d 'Answer DNS queries that peers send to this end of the tunnel, with this host\'s resolver'
complete -c convoy -n "__fish_convoy_using_subcommand up" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c convoy -n "__fish_convoy_using_subcommand exec" -l gso -d 'Send several datagrams in one call (UDP_SEGMENT)' -r -f -a "auto\t'Use it if the kernel supports it'
on\t'Fail if the kernel does not support it'
off\t'Do not use it'"
complete -c convoy -n "__fish_convoy_using_subcommand exec" -l tun-offload -d 'Exchange super-packets with the TUN device (TSO, USO)' -r -f -a "auto\t'Use it if the kernel supports it'
on\t'Fail if the kernel does not support it'
off\t'Do not use it'"
complete -c convoy -n "__fish_convoy_using_subcommand exec" -l udp-gro -d 'Receive several datagrams in one call (UDP_GRO)' -r -f -a "auto\t'Use it if the kernel supports it'
on\t'Fail if the kernel does not support it'
off\t'Do not use it'"
complete -c convoy -n "__fish_convoy_using_subcommand exec" -l aead -d 'Seal and open packets sixteen at a time, or one by one with ring' -r -f -a "auto\t'AVX-512 if the CPU has it, otherwise ring'
ring\t'ring'"
complete -c convoy -n "__fish_convoy_using_subcommand exec" -l batch -d 'Most packets in one batch, 1 to 50' -r
complete -c convoy -n "__fish_convoy_using_subcommand exec" -l clamp-mss -d 'Lower the MSS in TCP handshakes to what the interface\'s MTU carries, in both directions' -r -f -a "true\t''
false\t''"
complete -c convoy -n "__fish_convoy_using_subcommand exec" -l log-format -d 'Format of the log, which goes to stdout' -r -f -a "auto\t'Text on a terminal, fields for systemd\'s journal, elsewhere JSON'
text\t'Human-readable'
json\t'One JSON object per line, always with time, severity and message'
journal\t'Fields, sent to systemd\'s journal instead of stdout'"
complete -c convoy -n "__fish_convoy_using_subcommand exec" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c convoy -n "__fish_convoy_using_subcommand forward" -l buffer -d 'The buffer of a connection while bytes move, 8K to 256K; overrides the file' -r
complete -c convoy -n "__fish_convoy_using_subcommand forward" -l relay -d 'How bytes move' -r -f -a "splice\t'Within the kernel: splice(2)'
copy\t'Through a buffer of this process'"
complete -c convoy -n "__fish_convoy_using_subcommand forward" -l log-format -d 'Format of the log, which goes to stdout' -r -f -a "auto\t'Text on a terminal, fields for systemd\'s journal, elsewhere JSON'
text\t'Human-readable'
json\t'One JSON object per line, always with time, severity and message'
journal\t'Fields, sent to systemd\'s journal instead of stdout'"
complete -c convoy -n "__fish_convoy_using_subcommand forward" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c convoy -n "__fish_convoy_using_subcommand import" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand down" -l all -d 'Take down all tunnels, and undo what killed ones left'
complete -c convoy -n "__fish_convoy_using_subcommand down" -l open-kill-switch -d 'Remove a persistent kill switch, too'
complete -c convoy -n "__fish_convoy_using_subcommand down" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand reload" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand status" -l json -d 'Print one line of JSON instead of text'
complete -c convoy -n "__fish_convoy_using_subcommand status" -l rates -d 'Look twice, a second apart, and show each peer\'s rate'
complete -c convoy -n "__fish_convoy_using_subcommand status" -l watch -d 'Show what changes each second, on a terminal: rates, peers, batch sizes, drops'
complete -c convoy -n "__fish_convoy_using_subcommand status" -l schema -d 'Print the JSON Schema of what --json prints; do nothing else'
complete -c convoy -n "__fish_convoy_using_subcommand status" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand events" -l json -d 'Print one line of JSON per event instead of text'
complete -c convoy -n "__fish_convoy_using_subcommand events" -l schema -d 'Print the JSON Schema of the lines that --json prints; do nothing else'
complete -c convoy -n "__fish_convoy_using_subcommand events" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand capture" -s w -l write -d 'The pcapng file to write; `-` for standard output' -r -F
complete -c convoy -n "__fish_convoy_using_subcommand capture" -s c -l count -d 'Stop after N packets' -r
complete -c convoy -n "__fish_convoy_using_subcommand capture" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand pause" -l for -d 'How long, such as 90s, 5m or 1h30m; a day at most' -r
complete -c convoy -n "__fish_convoy_using_subcommand pause" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand resume" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand log" -l for -d 'How long, such as 90s, 5m or 1h30m; a day at most' -r
complete -c convoy -n "__fish_convoy_using_subcommand log" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand check" -l strict -d 'Treat warnings as errors'
complete -c convoy -n "__fish_convoy_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c convoy -n "__fish_convoy_using_subcommand doctor" -l stun -d 'Ask this STUN server, too; may be repeated. The default port is 3478' -r
complete -c convoy -n "__fish_convoy_using_subcommand doctor" -l nat -d 'Check only the NAT in front of this machine, by STUN servers: are direct paths possible?'
complete -c convoy -n "__fish_convoy_using_subcommand doctor" -l json -d 'Print one line of JSON instead of text'
complete -c convoy -n "__fish_convoy_using_subcommand doctor" -l schema -d 'Print the JSON Schema of what --json prints; do nothing else'
complete -c convoy -n "__fish_convoy_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c convoy -n "__fish_convoy_using_subcommand genkey" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand genpsk" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand pubkey" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand stats" -l json -d 'Print one line of JSON instead of text'
complete -c convoy -n "__fish_convoy_using_subcommand stats" -s h -l help -d 'Print help'
complete -c convoy -n "__fish_convoy_using_subcommand profile" -l pid -d 'The process of a daemon, of `convoy forward` or of `convoy up --userspace`, in any network namespace; its children that execute the same program are observed, too' -r
complete -c convoy -n "__fish_convoy_using_subcommand profile" -l read -d 'Record nothing; read this output of `perf script -F +pid` instead' -r -F
complete -c convoy -n "__fish_convoy_using_subcommand profile" -l secs -d 'Seconds that each of the three tools observes the daemon' -r
complete -c convoy -n "__fish_convoy_using_subcommand profile" -l out -d 'Output directory; must be empty or not exist yet' -r -F
complete -c convoy -n "__fish_convoy_using_subcommand profile" -l compare -d 'Compare with the profile in this directory: writes flamegraph-diff.svg, and both shares in report.md' -r -F
complete -c convoy -n "__fish_convoy_using_subcommand profile" -l call-graph -d 'How to find callers: `dwarf` works without frame pointers, but is slow' -r -f -a "fp\t'By frame pointers, with which the program must have been built'
dwarf\t'By debug information, from 16 KiB of each stack'"
complete -c convoy -n "__fish_convoy_using_subcommand profile" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l secs -d 'Measured seconds of each TCP run and each UDP confirmation' -r
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l tests -d 'Run these tests in this order: tcp-up and tcp-down; tcp-N with N streams up, 1 to 64; each of these also with -ping (a ping every 10 ms beside it) or -bbr (under BBR) appended; udp-SIZE with SIZE bytes of payload, from 16 to the MTU less 28. With --compare or --profile the default is tcp-up alone' -r
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l compare -d 'Measure two configurations of the daemon, interleaved; `shape` compares GSO and batches of 50 packets with neither' -r -f -a "gso\t''
tun-offload\t''
batch\t''
shape\t''"
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l rounds -d 'Rounds of a comparison' -r
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l profile -d 'Also profile both daemons, as `convoy profile` does, and write the result to this directory, which must be empty or not exist yet. The tests run three times: for the table, for the recording, and under strace. With --compare, writes a profile of each configuration and their difference' -r -F
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l call-graph -d 'How a profile finds callers: `dwarf` works without frame pointers, but is slow' -r -f -a "fp\t'By frame pointers, with which the program must have been built'
dwarf\t'By debug information, from 16 KiB of each stack'"
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l gso -d 'Passed to the daemons: several datagrams in one send' -r -f -a "auto\t''
on\t''
off\t''"
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l tun-offload -d 'Passed to the daemons: super-packets on the TUN device' -r -f -a "auto\t''
on\t''
off\t''"
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l udp-gro -d 'Passed to the daemons: several datagrams in one receive' -r -f -a "auto\t''
on\t''
off\t''"
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l aead -d 'Passed to the daemons: which implementation seals and opens packets' -r -f -a "auto\t''
ring\t''"
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l batch -d 'Passed to the daemons: most packets in one batch' -r
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l mtu -d 'MTU of the tunnel; the veth\'s MTU is raised if necessary' -r
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l peers -d 'Peers of each daemon, 1 to 10,000. All but one are configured with their own keys and addresses, but stay idle' -r
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l veth-gso -d 'Whether the veth passes GSO datagrams and TCP super-packets uncut, unlike a wire [default: on; off with --loss]' -r -f -a "true\t''
false\t''"
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l loss -d 'Packet loss on the veth in percent; the baseline without a tunnel is measured with it, too' -r
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l serve -d 'Answer the tests of `--to` from other hosts, on TCP port 5182 and on free ports for the traffic. Give this host\'s address inside the tunnel to serve only through the tunnel' -r
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l to -d 'Measure the path to a host that runs `--serve`; give its address inside the tunnel' -r
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -l json -d 'Print only one JSON object on standard output'
complete -c convoy -n "__fish_convoy_using_subcommand speedtest" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c convoy -n "__fish_convoy_using_subcommand help" -s h -l help -d 'Print help'
