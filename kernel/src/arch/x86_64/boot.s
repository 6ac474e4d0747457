# How a core gets into 64-bit mode. In assembly because there is no stack, no page table and no 64-bit mode yet.
# The boot core arrives at pvh_entry in 32-bit protected mode with paging off and ebx = physical address of the PVH start info; every other core
# arrives at ap_entry in real mode on a copy of the page ap_trampoline..ap_trampoline_end. Both go on at long_mode with the boot tables:
#   0 .. 4 GiB identity, the same at the direct map, and the image (not the core region: see link.ld).
# Core 0 narrows these tables to what starting cores need before it starts any (instance.rs).

.equ BIAS, 0x80000000          # adding it to an image address gives the physical address, modulo 2^32
.equ EFER, 0xc0000080

.section .note.pvh, "a", @note
    .balign 4
    .long 4, 8, 18             # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_entry + BIAS

.section .boot, "ax"
.code32
.globl pvh_entry
pvh_entry:
    cld
    cli
    rdtsc
    mov [boot_tsc + BIAS], eax
    mov [boot_tsc + BIAS + 4], edx

    # 4 GiB in 2 MiB pages: present, writable, large.
    mov edi, offset boot_directory + BIAS
    mov eax, 0x83
    xor edx, edx
    mov ecx, 2048
1:  mov [edi], eax
    mov [edi + 4], edx
    add edi, 8
    add eax, 0x200000
    loop 1b

    # The four directories, twice: from the bottom of the address space (and of the direct map), and GiB 510 of the top for the image.
    mov eax, offset boot_directory + BIAS + 3
    mov [boot_high + BIAS + 510 * 8], eax
    mov edi, offset boot_low + BIAS
    mov ecx, 4
2:  mov [edi], eax
    add eax, 0x1000
    add edi, 8
    loop 2b

    mov dword ptr [boot_root + BIAS], offset boot_low + BIAS + 3
    mov dword ptr [boot_root + BIAS + 256 * 8], offset boot_low + BIAS + 3
    mov dword ptr [boot_root + BIAS + 511 * 8], offset boot_high + BIAS + 3

    lgdt [boot_gdt_pointer + BIAS]

# ebx: start info, or 0 on every core but the first.
enter_long_mode:
    mov eax, 0xa0              # PAE, global pages
    mov cr4, eax
    mov eax, offset boot_root + BIAS
    mov cr3, eax
    mov ecx, EFER
    rdmsr
    or eax, 0x901              # SYSCALL, long mode, NX
    wrmsr
    mov eax, 0x80010033        # paging, write protection, native FPU errors, protected mode
    mov cr0, eax
    .byte 0xea                 # jmp 0x08:long_mode
    .long long_mode + BIAS
    .word 0x08

.code64
long_mode:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor eax, eax
    mov fs, eax
    mov gs, eax
    xor ebp, ebp
    movabs rax, offset in_image
    jmp rax                    # from the identity to the image addresses
in_image:
    test ebx, ebx
    jz 4f
    mov rsp, offset boot_stack_top
    mov edi, ebx
    call {boot_core}

# Another core: find our number by APIC id (x2APIC id from leaf 0xb if there is one, else the initial id of leaf 1).
4:  xor eax, eax
    cpuid
    mov esi, eax
    cmp esi, 0xb
    jb 5f
    mov eax, 0xb
    xor ecx, ecx
    cpuid
    test ebx, ebx
    jz 5f
    mov edi, edx
    jmp 6f
5:  mov eax, 1
    cpuid
    shr ebx, 24
    mov edi, ebx
6:  mov rsi, offset {apic_ids}
    xor eax, eax
7:  cmp [rsi + rax * 4], edi
    je 8f
    inc eax
    cmp eax, {cores_max}
    jb 7b
9:  cli
    hlt                        # a core nobody asked for
    jmp 9b
8:  mov rsi, offset {stacks}
    mov rsp, [rsi + rax * 8]
    mov edi, eax
    call {other_core}

# Copied to a page below 1 MiB; the SIPI's vector is that page's number. Only addresses of the image appear in it, and one offset into the page.
.code16
.balign 8
.globl ap_trampoline
ap_trampoline:
    jmp 10f
.balign 8
    .word 4 * 8 - 1            # at offset 8: operand of lgdt
    .long boot_gdt + BIAS
10: cli
    cld
    mov ax, cs
    mov ds, ax
    mov bx, 8
    .byte 0x66, 0x0f, 0x01, 0x17   # lgdt [bx], 32-bit base; assemblers disagree about the spelling
    mov eax, 0x11
    mov cr0, eax
    .byte 0x66, 0xea           # jmp 0x18:protected_mode, 32-bit
    .long protected_mode + BIAS
    .word 0x18
.globl ap_trampoline_end
ap_trampoline_end:

.code32
protected_mode:
    mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    xor ebx, ebx
    jmp enter_long_mode

.code64
.balign 8
# The accessed bits are set already: the table lies in read-only memory.
boot_gdt:
    .quad 0
    .quad 0x00af9b000000ffff   # 0x08: 64-bit code
    .quad 0x00cf93000000ffff   # 0x10: data
    .quad 0x00cf9b000000ffff   # 0x18: 32-bit code
boot_gdt_pointer:
    .word 4 * 8 - 1
    .long boot_gdt + BIAS

.section .bss.start, "aw", @nobits
.balign 4096
.globl boot_root, boot_low, boot_directory
boot_root:      .skip 4096
boot_low:       .skip 4096
boot_high:      .skip 4096
boot_directory: .skip 4 * 4096
boot_stack:     .skip 65536
boot_stack_top:
.globl boot_tsc
boot_tsc:       .skip 8
