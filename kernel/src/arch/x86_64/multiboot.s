# The second way in: Multiboot2 (its specification 2.0, sections 3.1 and 3.6), as GRUB enters from a
# disk image. Turns what the loader tells into a PVH start info and goes on at pvh_entry, so the rest
# of the kernel knows one loader only. In assembly because there is no stack yet. Entered in 32-bit
# protected mode, paging off, ebx = physical address of the loader's information. Both formats have
# the same entries in their memory maps; no tag is believed past its own size, which the loader wrote.

.equ PVH_MAGIC, 0x336ec578

.section .multiboot, "a"
    .balign 8
multiboot_header:
    .long 0xe85250d6, 0, multiboot_header_end - multiboot_header
    .long 0x100000000 - 0xe85250d6 - (multiboot_header_end - multiboot_header)
    .word 1, 0                 # the loader must tell: command line, modules, memory map
    .long 20, 1, 3, 6
    .balign 8
    .word 3, 0                 # entry address
    .long 12, multiboot_entry + BIAS
    .balign 8
    .word 6, 0                 # modules on pages
    .long 8
    .word 0, 0
    .long 8
multiboot_header_end:

.section .boot, "ax"
.code32
multiboot_entry:
    mov edi, offset multiboot_start_info + BIAS
    mov dword ptr [edi], PVH_MAGIC
    mov dword ptr [edi + 4], 1 # version: has a memory map
    lea esi, [ebx + 8]
1:  mov eax, [esi]             # type and bytes of the tag
    mov ecx, [esi + 4]
    lea edx, [esi + 8]
    test eax, eax
    jz 9f
    cmp eax, 1
    je 2f
    cmp eax, 3
    je 3f
    cmp eax, 6
    je 4f
    cmp eax, 14
    je 5f
    cmp eax, 15
    je 5f
8:  add ecx, 7
    and ecx, -8
    add esi, ecx
    jmp 1b
2:  mov [edi + 24], edx        # command line
    jmp 8b
3:  cmp dword ptr [edi + 12], 0
    jne 8b                     # the archive is the first module
    mov dword ptr [edi + 12], 1
    lea edx, [edi + 64]
    mov [edi + 16], edx
    mov edx, [esi + 8]
    mov eax, [esi + 12]
    sub eax, edx
    mov [edi + 64], edx
    mov [edi + 72], eax
    jmp 8b
4:  mov ebx, ecx               # memory map: entries of 24 bytes from offset 16
    add edx, 8
    mov [edi + 40], edx
    lea eax, [ebx - 16]
    xor edx, edx
    mov ebx, 24
    div ebx
    mov [edi + 48], eax
    jmp 8b
5:  mov [edi + 32], edx        # a copy of ACPI's root pointer; the newer one comes last
    jmp 8b
9:  mov ebx, edi
    jmp pvh_entry

.section .bss.start, "aw", @nobits
.balign 8
multiboot_start_info: .skip 64 + 32
