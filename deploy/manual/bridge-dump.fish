complete -c bridge-dump -l pin-dir -d 'Where the maps are pinned' -r -F
complete -c bridge-dump -l output -d 'text (never changes), json (exact numbers, null for what is not known) or table (units, for people)' -r
complete -c bridge-dump -l watch -d 'A live screen, refreshed every second or as given (500ms, 2s, 1m30s)' -r
complete -c bridge-dump -l pid -d 'Only these processes (host PIDs)' -r
complete -c bridge-dump -l device -d 'Only these devices, and processes that use one of them' -r
complete -c bridge-dump -l map -d 'Only these maps, by name' -r
complete -c bridge-dump -l follow -d 'Print every round as it comes, JSON in one line each, until interrupted'
complete -c bridge-dump -s h -l help -d 'Print help (see more with \'--help\')'
complete -c bridge-dump -s V -l version -d 'Print version'
