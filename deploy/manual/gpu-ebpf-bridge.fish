complete -c gpu-ebpf-bridge -l mode -d 'Where the telemetry comes from: the GPUs\' drivers (real), invented data (mock), or the drivers and, with a loud warning, invented data when none can be opened (auto)' -r -f -a "auto\t''
real\t''
mock\t''"
complete -c gpu-ebpf-bridge -l poll-interval -d 'Time between polls: more than 0, at most 1h; below 1ms becomes 1ms' -r
complete -c gpu-ebpf-bridge -l source -d 'Which GPUs: NVIDIA\'s through NVML (nvml), AMD\'s and Intel\'s through the kernel\'s own files (drm); several with commas or by giving the flag again [default: all that are there]' -r -f -a "nvml\t''
drm\t''"
complete -c gpu-ebpf-bridge -l idle-if-no-gpu -d 'In mode real, when no source is available: wait for one instead of failing' -r
complete -c gpu-ebpf-bridge -l nvml-library-path -d 'Absolute path of libnvidia-ml.so.1 [default: searched, under --host-path when that is given]' -r -F
complete -c gpu-ebpf-bridge -l drm-root -d 'For drm: absolute path of the directory that has the machine\'s sys and proc' -r -f -a "(__fish_complete_directories)"
complete -c gpu-ebpf-bridge -l pin-dir -d 'Directory of a BPF file system where the maps are pinned' -r -f -a "(__fish_complete_directories)"
complete -c gpu-ebpf-bridge -l keep-pins -d 'Leave the maps pinned, with their data, at exit' -r
complete -c gpu-ebpf-bridge -l dump -d 'Print what the maps hold and exit; polls nothing and disturbs nobody' -r
complete -c gpu-ebpf-bridge -l output -d 'For --dump: sections of text, whose form never changes, a JSON document, or a table for people' -r -f -a "text\t''
json\t''
table\t''"
complete -c gpu-ebpf-bridge -l health -d 'Say in one line whether the maps are fresh and exit: 0 publishing, or idle by design; 3 stale; 4 no maps' -r
complete -c gpu-ebpf-bridge -l health-max-age -d 'For --health: how old the newest round may be [default: 1s or 3 poll intervals, whichever is longer]' -r
complete -c gpu-ebpf-bridge -l pin-mode -d 'Permissions of the pins, octal, as in 0640 [default: 0600; pins of others keep theirs]' -r
complete -c gpu-ebpf-bridge -l pin-group -d 'Group of the pins, a name or a number [default: the process\'s; pins of others keep theirs]' -r
complete -c gpu-ebpf-bridge -l host-path -d 'Absolute path where the host\'s file system, or part of it, is mounted [default: none]' -r -f -a "(__fish_complete_directories)"
complete -c gpu-ebpf-bridge -l symlink-nvidia-devs -d 'At start, link every nvidia* of the host\'s /dev into /dev; needs --host-path' -r
complete -c gpu-ebpf-bridge -l log-level -d 'How much is logged, to standard error ("warning" is taken for warn; any case)' -r -f -a "debug\t''
info\t''
warn\t''
error\t''"
complete -c gpu-ebpf-bridge -l version -d 'Print the version and exit' -r
complete -c gpu-ebpf-bridge -s h -l help -d 'Print this help and exit'
